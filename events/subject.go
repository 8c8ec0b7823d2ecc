package events

import (
	"fmt"
	"strconv"
	"strings"
)

// SubjectKind says what a subject of the event stream holds.
type SubjectKind string

// The kinds of subjects below `<prefix>.events.<provider>.`.
const (
	// SubjectOperation holds everything decided or answered about one operation.
	SubjectOperation SubjectKind = "op"
	// SubjectJob holds evidence about one remote job: webhooks and polls.
	SubjectJob SubjectKind = "job"
	// SubjectAccount holds what concerns every operation of one credential set.
	SubjectAccount SubjectKind = "account"
	// SubjectSettled holds one public copy of one settlement.
	SubjectSettled SubjectKind = "settled"
	// SubjectInbox holds what could not be attributed.
	SubjectInbox SubjectKind = "inbox"
	// SubjectLedger holds the genesis of the stream; it has no provider.
	SubjectLedger SubjectKind = "ledger"
)

// Subject addresses one line of history, without the installation's prefix:
// `<provider>.op.<operation>`, `<provider>.job.<jobkey>`,
// `<provider>.account.<accountkey>`, `<provider>.settled.<operation>.<g>`, `<provider>.inbox.<ulid>`, and
// `ledger.genesis` for the first message of a stream.
type Subject struct {
	Provider Provider
	Kind     SubjectKind
	Key      string // operation id, job key or ULID
	G        int    // settlement generation, from 1; 0 for every other kind
}

// OperationSubject addresses the decisions and answers of one operation.
func OperationSubject(p Provider, op OperationID) Subject {
	return Subject{Provider: p, Kind: SubjectOperation, Key: string(op)}
}

// JobSubject addresses the evidence about one remote job.
func JobSubject(p Provider, key JobKey) Subject {
	return Subject{Provider: p, Kind: SubjectJob, Key: string(key)}
}

// AccountSubject addresses what concerns one credential set. Its name may hold
// any character, so the subject carries a hash of it.
func AccountSubject(p Provider, account string) Subject {
	return Subject{Provider: p, Kind: SubjectAccount, Key: HashID("account", string(p), account)}
}

// SettledSubject addresses the public copy of settlement g (from 1).
func SettledSubject(p Provider, op OperationID, g int) Subject {
	return Subject{Provider: p, Kind: SubjectSettled, Key: string(op), G: g}
}

// InboxSubject addresses one unattributable thing; id is a ULID.
func InboxSubject(p Provider, id string) Subject {
	return Subject{Provider: p, Kind: SubjectInbox, Key: id}
}

// GenesisSubject addresses the first message of a stream.
func GenesisSubject() Subject { return Subject{Kind: SubjectLedger, Key: "genesis"} }

// Operation returns the operation that the subject is about, "" if it is about
// none.
func (s Subject) Operation() OperationID {
	if s.Kind == SubjectOperation || s.Kind == SubjectSettled {
		return OperationID(s.Key)
	}
	return ""
}

// Job returns the remote job that the subject is about, "" if it is about none.
func (s Subject) Job() JobKey {
	if s.Kind == SubjectJob {
		return JobKey(s.Key)
	}
	return ""
}

// String gives the subject without prefix. ParseSubject reads it back.
func (s Subject) String() string {
	switch s.Kind {
	case SubjectLedger:
		return "ledger." + s.Key
	case SubjectSettled:
		return string(s.Provider) + ".settled." + s.Key + "." + strconv.Itoa(s.G)
	default:
		return string(s.Provider) + "." + string(s.Kind) + "." + s.Key
	}
}

// ParseSubject reads what String wrote. The error wraps ErrInvalidID.
func ParseSubject(text string) (Subject, error) {
	t := strings.Split(text, ".")
	if len(t) == 2 && t[0] == "ledger" && t[1] == "genesis" {
		return GenesisSubject(), nil
	}
	if len(t) < 3 {
		return Subject{}, fmt.Errorf("%w: subject %.120q", ErrInvalidID, text)
	}
	p, err := ParseProvider(t[0])
	if err != nil {
		return Subject{}, fmt.Errorf("subject %.120q: %w", text, err)
	}
	s := Subject{Provider: p, Kind: SubjectKind(t[1]), Key: t[2]}
	want := 3
	switch s.Kind {
	case SubjectOperation:
		_, err = ParseOperationID(s.Key)
	case SubjectJob:
		_, err = ParseJobKey(s.Key)
	case SubjectAccount:
		_, err = ParseJobKey(s.Key)
	case SubjectSettled:
		want = 4
		if _, err = ParseOperationID(s.Key); err == nil && len(t) == 4 {
			if s.G, err = strconv.Atoi(t[3]); err != nil || s.G < 1 || strconv.Itoa(s.G) != t[3] {
				err = fmt.Errorf("%w: settlement generation %.20q", ErrInvalidID, t[3])
			}
		}
	case SubjectInbox:
		if !inboxPattern.MatchString(s.Key) {
			err = fmt.Errorf("%w: inbox id %.40q", ErrInvalidID, s.Key)
		}
	default:
		err = fmt.Errorf("%w: subject kind %.20q", ErrInvalidID, t[1])
	}
	if err == nil && len(t) != want {
		err = fmt.Errorf("%w: subject has %d tokens, want %d", ErrInvalidID, len(t), want)
	}
	if err != nil {
		return Subject{}, fmt.Errorf("subject %.120q: %w", text, err)
	}
	return s, nil
}
