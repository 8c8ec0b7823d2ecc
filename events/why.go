package events

// Reasons are the closed set of words in Job.Why, review reasons and
// settlement reasons.
const (
	WhyNotSent              = "not_sent"
	WhyStartByPassed        = "start_by_passed"
	WhyCancelledUnsent      = "cancelled_before_send"
	WhyInFlight             = "attempt_in_flight"
	WhyUnproven             = "answer_missing"
	WhyCreateWindowClosed   = "create_window_closed"
	WhyCreateUnresolved     = "create_unresolved"
	WhyAttemptsExhausted    = "attempts_exhausted"
	WhyRequestChanged       = "request_changed"
	WhyTokenMismatch        = "token_payload_mismatch"
	WhyRejected             = "rejected"
	WhyTwoJobs              = "contract_violation"
	WhySharedJob            = "job_bound_twice"
	WhyBound                = "bound"
	WhyAlive                = "seen_alive"
	WhyClaim                = "claim"
	WhyContested            = "contested"
	WhyClaimUnconfirmed     = "claim_unconfirmed"
	WhyJobGone              = "job_gone"
	WhyContradictoryReads   = "contradictory_reads"
	WhyConfirmed            = "confirmed"
	WhyWebhookOnly          = "webhook_only"
	WhyResultPending        = "result_pending"
	WhyResultUnavailable    = "result_unavailable"
	WhyResultInvalid        = "result_invalid"
	WhyResultDeadline       = "result_deadline_passed"
	WhyLate                 = "late_outcome"
	WhyWaived               = "waived"
	WhyCancelPending        = "cancel_pending"
	WhyCancelSent           = "cancel_sent"
	WhyCancelDeadline       = "cancel_deadline_passed"
	WhyClosed               = "closed"
	WhyBoundAfterClose      = "bound_after_close"
	WhyAfterClose           = "evidence_after_close"
	WhyAcknowledged         = "acknowledged"
	WhyChangedAfterAnnounce = "contradicts_the_announced"
	WhyUnmapped             = "unmapped_state"
	WhyForeign              = "foreign_job"
	WhyUnreadable           = "unreadable_event"
	WhyCritical             = "critical_event"
	WhyNoIntent             = "no_intent"
)

// whyText says each reason to a person.
var whyText = map[string]string{
	WhyNotSent:              "nothing was sent, or it is proven that nothing happened",
	WhyStartByPassed:        "nothing was sent before the limit that the intent set",
	WhyCancelledUnsent:      "cancelled before anything was sent",
	WhyInFlight:             "a create request may be on its way",
	WhyUnproven:             "nothing proves what became of the create request",
	WhyCreateWindowClosed:   "no create may be sent any more, only reads",
	WhyCreateUnresolved:     "nothing could prove in time whether a job exists",
	WhyAttemptsExhausted:    "as many creates were tried as are allowed",
	WhyRequestChanged:       "the description renders another request than the one that was stored",
	WhyTokenMismatch:        "the provider knows the token with another request",
	WhyRejected:             "the provider refused; there is no job",
	WhyTwoJobs:              "the provider made two jobs for one token",
	WhySharedJob:            "the provider returned one job for two tokens",
	WhyBound:                "a job exists; nothing is known of it yet",
	WhyAlive:                "the job was seen alive",
	WhyClaim:                "a webhook says that the job is over; our own read decides",
	WhyContested:            "webhooks say two different ends",
	WhyClaimUnconfirmed:     "a webhook says that the job is over, and no read could confirm it in time",
	WhyJobGone:              "the provider no longer knows the job",
	WhyContradictoryReads:   "our own reads say two different ends",
	WhyConfirmed:            "read by ourselves",
	WhyWebhookOnly:          "told by a webhook; the provider offers no read",
	WhyResultPending:        "the success is confirmed, the result is not here yet",
	WhyResultUnavailable:    "the result cannot be had",
	WhyResultInvalid:        "the result breaks a rule",
	WhyResultDeadline:       "the job did not end in time",
	WhyLate:                 "the outcome came after the time for it had run out",
	WhyWaived:               "a person accepted the success without its result",
	WhyCancelPending:        "a cancellation is stored and not sent yet",
	WhyCancelSent:           "the provider was asked to cancel; a read decides",
	WhyCancelDeadline:       "nothing said in time that the job was cancelled",
	WhyClosed:               "a person ended it",
	WhyBoundAfterClose:      "a job was found after a person had ended the operation",
	WhyAfterClose:           "the job's end was read after a person had ended the operation",
	WhyAcknowledged:         "a person said what is true",
	WhyChangedAfterAnnounce: "the facts no longer give what was announced",
	WhyUnmapped:             "the provider uses a status word that the description does not map",
	WhyForeign:              "a job that was made for the operation's token is not the operation's, and may still run",
	WhyUnreadable:           "an event of the operation cannot be read",
	WhyCritical:             "an event of the operation is of an unknown type and must not be passed over",
	WhyNoIntent:             "there is evidence and no intent",
}

// WhyText says a reason in words, for people; "" for an unknown one.
func WhyText(why string) string { return whyText[why] }
