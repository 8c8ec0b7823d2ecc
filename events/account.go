package events

// Account is what concerns every operation of one credential set: whether
// anything may be sent for it. It is a record of its own, because a hold must
// not rewrite every operation that it stops.
type Account struct {
	Provider   Provider `json:"provider"`
	Key        string   `json:"key"` // of AccountSubject
	Name       string   `json:"account"`
	AppliedSeq uint64   `json:"applied_seq"`
	Held       Mark     `json:"held,omitzero"` // latest
	Reason     string   `json:"reason,omitempty"`
	Released   Mark     `json:"released,omitzero"` // latest
}

// Hold is why nothing may be sent now, "" if nothing stands in the way.
func (a *Account) Hold() string {
	if a.Held.Seq > a.Released.Seq {
		return a.Reason
	}
	return ""
}

func (a *Account) join(data Data, m Mark) {
	switch d := data.(type) {
	case *Held:
		a.Name = d.Account
		if m.Seq > a.Held.Seq {
			a.Held, a.Reason = m, d.Reason
		}
	case *Released:
		a.Name = d.Account
		a.Released = latest(a.Released, m)
	}
}

// NewAccount returns the record of a credential set that nothing is known about.
func NewAccount(p Provider, key string) *Account { return &Account{Provider: p, Key: key} }
