package events

import (
	"strings"
	"time"
)

// samples holds one full event of each type, every field set.
func samples() map[Type]Event {
	soon := testStart.Add(10 * time.Second)
	later := testStart.Add(45 * time.Second)
	remote := ref("job-<1>&2")
	raw := NewRaw([]byte(`{"id":"job-<1>&2"}`))
	blob, err := JSONBlob([]byte("{\"html\": \"<b>&\u2028</b>\", \"n\": 1.0}"))
	if err != nil {
		panic(err) // a literal
	}
	reading := Reading{
		State: RemoteSucceeded, Detail: DetailPartial, Status: "completed", Source: SourceWebhook, Authoritative: true,
		Attempt: 1, ProviderSeq: 7, ProviderAt: testStart, Counts: &Counts{Total: 3, Completed: 2, Failed: 1},
		Result: &blob, Error: &RemoteError{Code: "partial", Message: "one item failed"},
	}
	prepared := prepare(testOp, Contract{
		Idempotent: true, TokenRetention: Duration(24 * time.Hour), Lookup: true, Status: true, Callback: true,
		RejectAuthoritative: true, Result: true, ResultOnce: true, Cancel: true, CancelIdempotent: true, ReviewLate: true, FourEyes: true,
	})
	prepared.Intent.AuthorizedBy = "dana"
	prepared.Intent.Deadlines = Deadlines{StartBy: later, Create: Duration(time.Minute)}
	prepared.Deadlines = prepared.Deadlines.Overlay(prepared.Intent.Deadlines)
	all := []Data{
		&Genesis{LedgerID: testULID},
		prepared,
		&AttemptStarted{N: 2, SendBy: soon, LeaseUntil: later, Window: 1},
		&Accepted{N: 1, Remote: remote, State: RemoteQueued},
		&Rejected{N: 1, Class: "invalid_request", Status: 422, Code: "E1", Message: "no such size"},
		&Ambiguous{N: 1, Class: "timeout", Status: 504, Detail: "no answer in 30s"},
		&NotSent{N: 1, Class: "dial", Detail: "connection refused"},
		&Throttled{N: 1, RetryAt: later},
		&ReconFound{Remote: remote, Via: "lookup"},
		&ReconAbsent{Covers: 2, AsOf: soon},
		&ReconFailed{Class: "timeout", Detail: "no answer in 30s"},
		&Observed{Remote: remote, Reading: reading, Reference: &Reference{Operation: testOp, Proven: true}, Delivery: "msg_1", Raw: &raw},
		&Unrecognised{Remote: remote, Status: "warming", Source: SourcePoll},
		&Gone{Remote: remote, Status: 404},
		&PollDeferred{Remote: remote, Until: later, Reason: "retry_after"},
		&PollAudit{Remote: remote, Count: 12, Since: testStart},
		&DeadlinePassed{Name: ClockConfirm, Gen: 1, Due: testStart},
		&ResultStored{G: 1, N: 1, Result: blob, Counts: &Counts{Total: 3, Completed: 3}},
		&ResultUnavailable{G: 1, N: 1, Final: true, Reason: "expired"},
		&ResultInvalid{G: 1, N: 1, Rule: "schema"},
		&Settled{
			G: 1, State: StateSucceeded, Outcome: OutcomeConfirmed, Reason: WhyConfirmed, Assurance: AssuranceRead,
			LearnedBy: SourcePoll, Remote: &remote, Evidence: []uint64{1, 3, 5}, Result: &blob,
			Error: &RemoteError{Code: "partial"}, Counts: &Counts{Total: 3, Completed: 2, Failed: 1},
			Detail: DetailPartial, Late: true, Waived: true, Cancel: CancelOvertaken, DecidedBy: "dana",
			Effects: []string{"mail"}, Labels: map[string]string{"team": "a"}, SubmittedAt: testStart,
		},
		&ReviewOpened{ID: "create_unresolved:1", Reason: WhyCreateUnresolved, State: StateNeedsReview},
		&EffectClaimed{Name: "mail", G: 1, N: 1, Key: EffectKey(testOp, "mail", 1), SendBy: soon, LeaseUntil: later},
		&EffectAttempted{Name: "mail", G: 1, N: 1, Class: "server_error", Status: 500, RetryAt: later},
		&EffectDone{Name: "mail", G: 1, N: 1, Status: 200},
		&EffectDead{Name: "mail", G: 1, N: 1, Reason: "gave up"},
		&CancelRequested{ID: "req-1", By: "dana", Reason: "ordered by mistake", Expected: "no charge"},
		&CancelStarted{N: 1, Remote: remote, SendBy: soon, LeaseUntil: later},
		&CancelAcknowledged{N: 1, Status: 202},
		&CancelRefused{N: 1, Why: RefusalTerminal, Status: 409, Code: "E2", Message: "it is over"},
		&CancelAmbiguous{N: 1, Class: "timeout", Status: 504, Detail: "no answer in 30s"},
		&CancelNotSent{N: 1, Class: "throttled", RetryAt: later},
		&CollectStarted{G: 1, N: 1, SendBy: soon, LeaseUntil: later},
		&ReviewResolved{
			ID: "create_unresolved:1", Action: ResolveBind, By: "dana", Note: "found in the console", Remote: &remote, Covers: 2,
			Clock: ClockRecon, Until: later, G: 1, State: StateSucceeded, Disposition: OutcomeFailed, Event: 7,
		},
		&Note{By: "dana", Text: "asked the provider"},
		&Archived{
			State: StateSucceeded, Reason: WhyConfirmed, Outcome: OutcomeConfirmed, Fingerprint: "sha256:" + strings.Repeat("a", 64),
			PreparedAt: testStart, Settlements: []ArchivedSettlement{{G: 1, State: StateSucceeded, Seq: 9}},
			Effects: []ArchivedEffect{{Name: "mail", G: 1, Done: true}}, Events: 13, HistorySHA256: strings.Repeat("d", 64), Archive: "archive/2026/op_1",
		},
		&OrphanExpired{Remote: remote},
		&Held{Account: DefaultAccount, Reason: "credentials", Detail: "invalid key", Status: 401},
		&Released{Account: DefaultAccount, Reason: "credentials changed"},
		&IntentRefused{Operation: "op 1", Field: "operation_id", Reason: "invalid", Body: NewRaw([]byte("\xff\xfe"))},
		&WebhookUnreadable{Reason: "no id", Delivery: "msg_2", Reference: &Reference{Operation: testOp}, Body: raw},
		&EventParked{Seq: 12, Reason: "invalid event"},
	}
	events := make(map[Type]Event, len(all))
	for _, d := range all {
		subject := at(testOp, d)
		switch kindOf(d.Type()) {
		case SubjectAccount:
			subject = AccountSubject(testProvider, DefaultAccount)
		case SubjectLedger:
			subject = GenesisSubject()
		case SubjectInbox:
			subject = InboxSubject(testProvider, testULID)
		}
		events[d.Type()] = Event{
			ID: "x:" + string(d.Type()), Subject: subject, Time: testStart.Add(123456789), Actor: "reconciler",
			Claim: testULID, Cause: "p:op_1", Trace: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Critical: d.Type() == TypeArchived, Data: d,
		}
	}
	return events
}
