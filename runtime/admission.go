package runtime

import (
	"errors"

	"github.com/edgehost/edgehost/guests/abi"
	"github.com/edgehost/edgehost/objects"
)

// An admission is a call that the guest makes by other means than fetch.
type admission struct {
	x          *exchange
	dependency *dependency
	admitted   objects.Admission
}

var _ handle = (*admission)(nil)

func (*admission) ready(uint32) (uint32, error) { return 0, errKind }

func (h *admission) drop() {
	h.x.tasks.Go(func() { _ = h.dependency.report(h.admitted, objects.Canceled) }) // nobody is left to tell
}

func hostAdmit(x *exchange, a []uint64) (int32, error) {
	name, err := x.inst.memory.view(uint32(a[0]), uint32(a[1]))
	if err != nil {
		return 0, err
	}
	if uint32(a[2]) != 0 {
		return 0, errFlags
	}
	if len(name) == 0 {
		return 0, errName
	}
	d, err := x.dependencyNamed(name)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(x.gone(), x.room()); err != nil {
		return 0, err
	}
	admitted, err := d.object.Admit(x.effort())
	if err != nil {
		return 0, err
	}
	return x.add(&admission{x, d, admitted})
}

func hostReport(x *exchange, a []uint64) (int32, error) {
	h, err := find[*admission](x, uint32(a[0]))
	if err != nil {
		return 0, err
	}
	outcomes := [...]objects.Outcome{
		abi.OutcomeSuccess: objects.Success, abi.OutcomeFailure: objects.Failure,
		abi.OutcomeCanceled: objects.Canceled, abi.OutcomeExcluded: objects.Excluded,
	}
	outcome := uint32(a[1])
	if outcome >= uint32(len(outcomes)) {
		return 0, abi.Unsupported
	}
	x.forget(uint32(a[0]))
	return 0, h.admitted.Report(x.effort(), outcomes[outcome])
}
