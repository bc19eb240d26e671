package wasmbin

// charge writes a point.
func (w *rewriter) charge(p *point) {
	w.uses.counter = true
	switch p.kind {
	case pointLoop:
		return // openLoop wrote it
	case pointEntry:
		w.chargeEntry(p, true)
	case pointCalls:
		w.chargeCalls(p)
	case pointPlain:
		switch {
		case !w.facts.loops:
			w.out = w.out.getGlobal(w.meter.counter).i64(p.amount()).op(opI64Sub).setGlobal(w.meter.counter)
		case p.at == 0:
			w.chargeEntry(p, false)
		default:
			w.out = w.out.getLocal(w.counter).i64(p.amount()).op(opI64Sub).setLocal(w.counter)
		}
	}
}

// amount is what a point takes from the counter, without depth.
func (p *point) amount() int64 { return int64(p.cost) * fuelUnit }

// chargeEntry takes the counter into the local.
func (w *rewriter) chargeEntry(p *point, look bool) {
	amount := p.amount()
	if w.facts.recursive {
		amount -= depthUnit
	}
	w.out = w.out.getGlobal(w.meter.counter).i64(amount).op(opI64Sub).setLocal(w.counter)
	if look {
		w.lookAt(p, func(c code) code { return c.setLocal(w.counter) })
	}
}

// chargeCalls charges what precedes the calls of a segment, in a function that
// keeps the counter in the global.
func (w *rewriter) chargeCalls(p *point) {
	amount := p.amount()
	if p.deep {
		amount -= depthUnit
	}
	w.out = w.out.getGlobal(w.meter.counter).i64(amount).op(opI64Sub).
		teeLocal(w.counter).setGlobal(w.meter.counter)
	w.lookAt(p, func(c code) code { return c.setGlobal(w.meter.counter) })
}

func (w *rewriter) giveBackDepth() {
	w.out = w.out.getGlobal(w.meter.counter).i64(depthUnit).op(opI64Sub).setGlobal(w.meter.counter)
}

// lookAt refuels if the counter, which is in the local, is exhausted. The arm
// that is run nearly always comes first: wazero's compiler lets the code after
// both go on with the registers of the first, so that only the rare arm has to
// restore what its call clobbered.
func (w *rewriter) lookAt(p *point, set func(code) code) {
	w.out = w.out.getLocal(w.counter)
	if p.deep {
		w.out = w.out.i64(exhausted).op(opI64And).op(opI64Eqz)
	} else {
		w.out = w.out.i64(0).op(opI64GeS)
	}
	w.out = w.out.op(opIf, emptyBlock).op(opElse).getLocal(w.counter).call(w.meter.refuel)
	w.out = set(w.out).end()
}

// openLoop writes the start of a loop, which becomes
//
//	block                     ;; to leave the loop
//	  loop
//	    block                 ;; to refuel
//	      counter -= cost
//	      br_if 0 (counter is exhausted)
//	      block
//	        …
//	      end
//	      br 2
//	    end
//	    counter = refuel(counter) + cost
//	    br 0
//	  end
//	end
//
// so that an iteration costs a subtraction and a branch that is not taken. The
// innermost block has the type of the loop: without it a body that leaves too
// much on the stack, which is invalid, would become valid.
// Refuelling goes through the start again, and is written as one more iteration
// because the registers at the start of a loop are chosen by who enters it first.
func (w *rewriter) openLoop(blockType int64, start int) {
	p := w.pointAt(start)
	if p == nil { // unreachable
		w.out = w.out.op(opLoop, blockType)
		w.openBlock(nil)
		return
	}
	w.out = w.out.op(opBlock, blockType).op(opLoop, blockType)
	w.open++
	w.openBlock(p)
	w.out = w.out.op(opBlock, w.blockOfParams(blockType))
	w.open++
	w.out = w.out.getLocal(w.counter).i64(p.amount()).op(opI64Sub).teeLocal(w.counter)
	if p.deep {
		w.out = w.out.i64(exhausted).op(opI64And).i64(0).op(opI64Ne)
	} else {
		w.out = w.out.i64(0).op(opI64LtS)
	}
	w.out = w.out.op(opBrIf, 0).op(opBlock, blockType)
	w.open++
}

// closeBlock writes the end of a block.
func (w *rewriter) closeBlock() {
	block := w.blocks[len(w.blocks)-1]
	w.blocks = w.blocks[:len(w.blocks)-1]
	if block.loop != nil {
		w.out = w.out.end().op(opBr, 2).end()
		w.refuelLoop(block.loop)
		w.out = w.out.op(opBr, 0).end()
		w.open -= 3
	}
	w.out = w.out.end()
	w.open--
}

// blockOfParams returns the type of a block with the parameters of blockType
// both as parameters and as results.
func (w *rewriter) blockOfParams(blockType int64) int64 {
	if blockType < 0 {
		return emptyBlock
	}
	params := w.meter.m.Types[blockType].Params
	return w.meter.blockType(params, params)
}

// refuelLoop gets a slice and undoes the charge, which is about to be repeated.
//
// Locals that the loop carries are replaced by copies before the call. Otherwise
// wazero's compiler, which spills a value where it is defined, would store each
// of them in every iteration for the sake of this call.
func (w *rewriter) refuelLoop(p *point) {
	carried := w.carried[p.at]
	var floats []uint32
	for _, l := range carried {
		switch w.locals.of(l) {
		case I32:
			w.out = w.out.getLocal(l).i32(0).op(opI32Add).setLocal(l)
		case I64:
			w.out = w.out.getLocal(l).i64(0).op(opI64Add).setLocal(l)
		case F32:
			w.out = w.out.getLocal(l).op(opI32ReinterpretF32)
			floats = append(floats, l)
		case F64:
			w.out = w.out.getLocal(l).op(opI64ReinterpretF64)
			floats = append(floats, l)
		case V128, FuncRef, ExternRef: // rare
		}
	}
	w.out = w.out.getLocal(w.counter).call(w.meter.refuel).i64(p.amount()).op(opI64Add).setLocal(w.counter)
	for i := len(floats) - 1; i >= 0; i-- {
		back := opF64ReinterpretI64
		if w.locals.of(floats[i]) == F32 {
			back = opF32ReinterpretI32
		}
		w.out = w.out.op(back).setLocal(floats[i])
	}
}
