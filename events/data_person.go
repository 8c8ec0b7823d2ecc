package events

import "time"

// Payloads that begin with a person: cancellations, resolutions and remarks; and
// what the calls that follow from them answered.

// CancelRequested is somebody's wish to stop an operation. It is a latch: it
// counts from the moment it is stored, whatever the operation is at.
type CancelRequested struct {
	ID       string `json:"id"`                 // of the request, so that a repeat is recognised
	By       string `json:"by"`                 // who
	Reason   string `json:"reason,omitempty"`   // why
	Expected string `json:"expected,omitempty"` // what they expect to happen
}

// CancelStarted is the decision to send cancel call N (from 1 over the whole
// operation).
type CancelStarted struct {
	N          int       `json:"n"`
	Remote     RemoteRef `json:"remote"`
	SendBy     time.Time `json:"send_by"`     // no first byte after it
	LeaseUntil time.Time `json:"lease_until"` // after it, others may call the attempt ambiguous
}

// CancelAcknowledged says that the provider took the request. Whether the job
// ends as cancelled is for a read to say.
type CancelAcknowledged struct {
	N      int `json:"n"`
	Status int `json:"status,omitempty"`
}

// Why a provider refuses a cancellation.
const (
	RefusalTerminal    = "terminal"    // the job is over already: a read says how
	RefusalUnsupported = "unsupported" // this job cannot be cancelled, now or ever
)

// CancelRefused is a definite refusal.
type CancelRefused struct {
	N       int    `json:"n"`
	Why     string `json:"why"` // RefusalTerminal, RefusalUnsupported
	Status  int    `json:"status,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"` // at most 1 KiB
}

// CancelAmbiguous says that a call ended without proof.
type CancelAmbiguous struct {
	N      int    `json:"n"`
	Class  string `json:"class"`
	Status int    `json:"status,omitempty"`
	Detail string `json:"detail,omitempty"`
}

// CancelNotSent says that a call had no effect: not one byte left, or the
// provider refused it unprocessed.
type CancelNotSent struct {
	N       int       `json:"n"`
	Class   string    `json:"class"` // e.g. dial, late, throttled
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// CollectStarted is the decision to fetch a result: attempt N (from 1) of result
// generation G.
type CollectStarted struct {
	G          int       `json:"g"`
	N          int       `json:"n"`
	SendBy     time.Time `json:"send_by"`
	LeaseUntil time.Time `json:"lease_until"`
}

// Resolution is what a person may answer to a review.
type Resolution string

// Resolutions, and what each needs beside who and why.
const (
	ResolveBind          Resolution = "bind_job"               // Remote: this job is the operation's
	ResolveAbsent        Resolution = "declare_absent"         // Covers: these attempts made no job; one more may go
	ResolveExtend        Resolution = "extend"                 // Clock, Until: keep waiting
	ResolveRetry         Resolution = "retry_collection"       // G: collect anew, as this result generation
	ResolveWaive         Resolution = "accept_with_waiver"     // G: accept the success without this result
	ResolveClose         Resolution = "close"                  // Disposition: nothing more will be done
	ResolveAcknowledge   Resolution = "acknowledge"            // G: the announcement that was wrong, 0 none; State: the true one, "" as the facts say
	ResolveForeignCancel Resolution = "approve_foreign_cancel" // Remote: cancel this job, which is not the operation's
	ResolveDismiss       Resolution = "dismiss"                // Event: go on without what this event says; Remote: leave this job alone
)

// Resolutions lists every resolution once.
func Resolutions() []Resolution {
	return []Resolution{
		ResolveBind, ResolveAbsent, ResolveExtend, ResolveRetry, ResolveWaive, ResolveClose, ResolveAcknowledge,
		ResolveForeignCancel, ResolveDismiss,
	}
}

// ReviewResolved is a person's answer. Job.CheckResolution says whether an
// answer fits the job; the fold takes whatever was stored.
type ReviewResolved struct {
	ID     string     `json:"id"` // of the review
	Action Resolution `json:"action"`
	By     string     `json:"by"`
	Note   string     `json:"note"` // why

	Remote      *RemoteRef `json:"remote,omitempty"`
	Covers      int        `json:"covers,omitempty"`
	Clock       Clock      `json:"clock,omitempty"`
	Until       time.Time  `json:"until,omitzero"`
	G           int        `json:"g,omitempty"`
	State       State      `json:"state,omitempty"`
	Disposition Outcome    `json:"disposition,omitempty"` // failed, cancelled
	Event       uint64     `json:"event,omitempty"`       // sequence
}

// Note is a remark. It changes nothing but the history.
type Note struct {
	By   string `json:"by"`
	Text string `json:"text"` // at most 4 KiB
}

// Archived is what is left of an operation whose history was exported. Folded
// alone it gives the job as it stood, so that the operation is neither repeated
// nor announced again.
type Archived struct {
	State         State                `json:"state"`
	Reason        string               `json:"reason"`
	Outcome       Outcome              `json:"outcome"`
	Fingerprint   string               `json:"fingerprint"` // of the intent: the same request again is recognised
	PreparedAt    time.Time            `json:"prepared_at"`
	Settlements   []ArchivedSettlement `json:"settlements"`
	Effects       []ArchivedEffect     `json:"effects,omitempty"`
	Events        int                  `json:"events"`         // exported
	HistorySHA256 string               `json:"history_sha256"` // hex, of the export
	Archive       string               `json:"archive"`        // where the export is
}

// ArchivedSettlement is one announcement of an archived operation.
type ArchivedSettlement struct {
	G     int    `json:"g"`
	State State  `json:"state"`
	Seq   uint64 `json:"seq"`
}

// ArchivedEffect is how one effect of an archived operation ended.
type ArchivedEffect struct {
	Name string `json:"name"`
	G    int    `json:"g"`
	Done bool   `json:"done"` // else it was given up
}

// OrphanExpired says that no operation claimed a job in time.
type OrphanExpired struct {
	Remote RemoteRef `json:"remote"`
}

// Held stops everything that would change something at a provider's account:
// creates, cancels, fetches. Reads go on, they notice when it is over.
type Held struct {
	Account string `json:"account"`
	Reason  string `json:"reason"` // credentials, operator, …
	Detail  string `json:"detail,omitempty"`
	Status  int    `json:"status,omitempty"`
}

// Released ends a hold.
type Released struct {
	Account string `json:"account"`
	Reason  string `json:"reason"`
}
