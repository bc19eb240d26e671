package wasmbin

// freeLimit is the cost up to which a function without loops is paid for by its
// callers.
const freeLimit = 64

// analyze completes the facts with what follows from who calls whom.
func (g *gatherer) analyze(all []facts) {
	graph := newCallGraph(g, all)
	for _, component := range graph.components() {
		recursive := len(component) > 1 || graph.callsItself(component[0])
		for _, node := range component {
			if node < len(all) {
				settle(&all[node], all, recursive)
			}
		}
	}
}

// settle decides how f is paid for. Its callees are settled, unless f is
// recursive.
func settle(f *facts, all []facts, recursive bool) {
	f.recursive = recursive
	if f.loops || f.cost > freeLimit {
		return
	}
	f.dues = f.cost
	if recursive || f.dynamic || f.imports || len(f.indirect) > 0 {
		return
	}
	total := f.cost
	for _, callee := range f.calls {
		if !all[callee].free {
			return
		}
		total += all[callee].dues
	}
	if total <= freeLimit {
		f.free, f.dues = true, total
	}
}

// callGraph has a node for every function defined in the module, and after
// those a node for every type, which stands for all functions of this type that
// may be in a table.
type callGraph struct {
	all     []facts
	targets [][]uint32 // functions by type
}

func newCallGraph(g *gatherer, all []facts) *callGraph {
	graph := &callGraph{all: all, targets: make([][]uint32, len(g.m.Types))}
	canonical := canonicalTypes(g.m.Types)
	g.eachTaken(func(i int, t uint32) {
		graph.targets[canonical[t]] = append(graph.targets[canonical[t]], uint32(i))
	})
	for t, c := range canonical { // equal types share their targets
		graph.targets[t] = graph.targets[c]
	}
	return graph
}

// eachTaken visits the functions defined in the module that may be in a table,
// with their types.
func (g *gatherer) eachTaken(visit func(i int, t uint32)) {
	for i := range g.m.Funcs {
		if index := g.imported + uint32(i); g.taken[index] {
			visit(i, g.types[index])
		}
	}
}

// typeDues lists by type what a call through a table pays: the highest dues of
// the functions that it may reach.
func (g *gatherer) typeDues(all []facts) []int {
	dues := make([]int, len(g.m.Types))
	canonical := canonicalTypes(g.m.Types)
	g.eachTaken(func(i int, t uint32) {
		dues[canonical[t]] = max(dues[canonical[t]], all[i].dues)
	})
	for t, c := range canonical {
		dues[t] = dues[c]
	}
	return dues
}

// canonicalTypes maps every type to the first one that equals it.
func canonicalTypes(types []FuncType) []uint32 {
	first := make(map[string]uint32, len(types))
	canonical := make([]uint32, len(types))
	for i, t := range types {
		key := string(appendFuncType(nil, t))
		if _, ok := first[key]; !ok {
			first[key] = uint32(i)
		}
		canonical[i] = first[key]
	}
	return canonical
}

// edge returns the i-th node that node leads to.
func (c *callGraph) edge(node, i int) (to int, ok bool) {
	if node >= len(c.all) {
		targets := c.targets[node-len(c.all)]
		if i < len(targets) {
			return int(targets[i]), true
		}
		return 0, false
	}
	f := &c.all[node]
	if i < len(f.calls) {
		return int(f.calls[i]), true
	}
	if i -= len(f.calls); i < len(f.indirect) {
		return len(c.all) + int(f.indirect[i]), true
	}
	return 0, false
}

func (c *callGraph) callsItself(node int) bool {
	for i := 0; ; i++ {
		to, ok := c.edge(node, i)
		if !ok || to == node {
			return ok
		}
	}
}

// components returns the strongly connected components, callees before callers
// (Tarjan's algorithm; the stack of visits is explicit because call chains of
// hostile modules are long).
func (c *callGraph) components() [][]int {
	n := len(c.all) + len(c.targets)
	t := tarjan{order: make([]int, n), low: make([]int, n), onStack: make([]bool, n)}
	for node := range n {
		if t.order[node] == 0 {
			t.visit(c, node)
		}
	}
	return t.found
}

type tarjan struct {
	order   []int // when a node was met, 0 if not yet
	low     []int // the earliest node on the stack that it reaches
	onStack []bool
	stack   []int
	met     int
	found   [][]int
}

func (t *tarjan) visit(c *callGraph, root int) {
	type frame struct{ node, edge int }
	t.meet(root)
	for visits := []frame{{node: root}}; len(visits) > 0; {
		top := &visits[len(visits)-1]
		if to, ok := c.edge(top.node, top.edge); ok {
			top.edge++
			switch {
			case t.order[to] == 0:
				t.meet(to)
				visits = append(visits, frame{node: to})
			case t.onStack[to]:
				t.low[top.node] = min(t.low[top.node], t.order[to])
			}
			continue
		}
		node := top.node
		if visits = visits[:len(visits)-1]; len(visits) > 0 {
			caller := visits[len(visits)-1].node
			t.low[caller] = min(t.low[caller], t.low[node])
		}
		if t.low[node] == t.order[node] {
			t.pop(node)
		}
	}
}

func (t *tarjan) meet(node int) {
	t.met++
	t.order[node], t.low[node] = t.met, t.met
	t.stack, t.onStack[node] = append(t.stack, node), true
}

// pop takes the component of node off the stack.
func (t *tarjan) pop(node int) {
	for i := len(t.stack) - 1; ; i-- {
		t.onStack[t.stack[i]] = false
		if t.stack[i] == node {
			t.found = append(t.found, append([]int(nil), t.stack[i:]...))
			t.stack = t.stack[:i]
			return
		}
	}
}
