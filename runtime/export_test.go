package runtime

// Live counts the instances that serve, start, or are on their way out.
func (e *Engine) Live() (n int) {
	e.census(func(_, _ string, c census) { n += c.busy + c.starting })
	return n
}

// MeteringVersion names what is kept of metered modules.
const MeteringVersion = meteringVersion

// Rewrite meters a module as it is done before it is compiled.
var Rewrite = rewrite
