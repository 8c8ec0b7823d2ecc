package events

import "errors"

// ErrNotArchivable is returned for an operation that still owes something.
var ErrNotArchivable = errors.New("operation cannot be archived")

// Archive builds what is left of an operation when its history is exported:
// events of them, with the given hash, to the given place. It returns
// ErrNotArchivable unless the operation is settled as announced and owes
// nothing, neither a public copy nor an effect nor an answer of a person.
func (j *Job) Archive(events int, historySHA256, place string) (*Archived, error) {
	last := j.Announced()
	if j.Archived != nil || last == nil || !j.State.Settled() || !last.Public.Set() || len(j.Owed()) > 0 || len(j.Questions()) > 0 {
		return nil, ErrNotArchivable
	}
	a := &Archived{
		State: j.State, Reason: j.Why, Outcome: j.Outcome, Fingerprint: j.Prepared.Fingerprint, PreparedAt: j.Prepared.At,
		Events: events, HistorySHA256: historySHA256, Archive: place,
	}
	for i := range j.Settlements {
		if s := &j.Settlements[i]; s.Set() {
			a.Settlements = append(a.Settlements, ArchivedSettlement{G: s.G, State: s.State, Seq: s.Seq})
		}
	}
	for i := range j.Effects {
		e := &j.Effects[i]
		a.Effects = append(a.Effects, ArchivedEffect{Name: e.Name, G: e.G, Done: e.Done.Set()})
	}
	return a, nil
}
