package events

import "time"

// RemoteState is the provider's state in our vocabulary. Each description maps
// the provider's words to it; a word without mapping is Unrecognised.
type RemoteState string

// Remote states. The first three are ordered; the last three are terminal and
// unordered among themselves.
const (
	RemoteQueued     RemoteState = "queued"
	RemoteRunning    RemoteState = "running"
	RemoteCancelling RemoteState = "cancelling"
	RemoteSucceeded  RemoteState = "succeeded"
	RemoteFailed     RemoteState = "failed"
	RemoteCancelled  RemoteState = "cancelled"
)

// rank orders remote states; 0 means not a state.
func (s RemoteState) rank() int {
	switch s {
	case RemoteQueued:
		return 1
	case RemoteRunning:
		return 2
	case RemoteCancelling:
		return 3
	case RemoteSucceeded, RemoteFailed, RemoteCancelled:
		return 4
	default:
		return 0
	}
}

// Terminal reports whether a job in this state does nothing more.
func (s RemoteState) Terminal() bool { return s.rank() == 4 }

// Valid reports whether s is one of the remote states.
func (s RemoteState) Valid() bool { return s.rank() > 0 }

// Source says how a reading reached us.
type Source string

// Sources of readings.
const (
	SourceCreate  Source = "create"
	SourcePoll    Source = "poll"
	SourceWebhook Source = "webhook"
	SourceLookup  Source = "lookup"
)

// Detail qualifies a terminal state.
const (
	DetailExpired   = "expired"
	DetailPartial   = "partial"
	DetailModerated = "moderated"
)

// Reading is what one message of the provider says about a job, in our words.
type Reading struct {
	State  RemoteState `json:"state"`
	Detail string      `json:"detail,omitempty"`
	// Status is the provider's own word, at most 128 bytes, for people.
	Status string `json:"status,omitempty"`
	Source Source `json:"source"`
	// Authoritative: our own read of the provider, or a create answer that is
	// declared final. A webhook never is.
	Authoritative bool `json:"authoritative,omitempty"`
	// Attempt counts re-runs of a job under one id, from 0.
	Attempt     int          `json:"attempt,omitempty"`
	ProviderSeq int64        `json:"provider_seq,omitempty"` // the sender's own number, 0: none
	ProviderAt  time.Time    `json:"provider_at,omitzero"`   // the sender's own clock
	Counts      *Counts      `json:"counts,omitempty"`
	Result      *Blob        `json:"result,omitempty"` // for a success with an inline result
	Error       *RemoteError `json:"error,omitempty"`  // for a failure
}

// Counts are the items of a job that has several.
type Counts struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	Failed    int64 `json:"failed"`
}

// RemoteError is the provider's own account of a failure.
type RemoteError struct {
	Code    string `json:"code,omitempty"`    // at most 128 bytes
	Message string `json:"message,omitempty"` // at most 1 KiB
}
