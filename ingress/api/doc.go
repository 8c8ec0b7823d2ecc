// Package api is the HTTP interface under /v1: submit an intent, read what
// became of the operation, wait for its outcome, read its history.
//
// It decides nothing. A submission is handed to the intent door and answered
// when it is durable; every read is of the folded job, from an in-memory Index
// that the bucket feeds. When the index has not seen an operation yet, the
// ledger is folded instead, so a read right after a 202 never says 404.
//
// The package promises:
//
//   - the outcome endpoint says confirmed, failed or cancelled only after the
//     settlement is announced, never from a state that is merely derived;
//   - every error is an RFC 9457 problem with a stable type, and never carries
//     a value of the request's body that the intent door did not choose to name;
//   - nothing that a foreign web page can make a browser send changes anything.
//
// It does not authenticate anybody: it is meant for a loopback or private
// address. It starts no goroutine.
//
// The framework (huma) is contained here: routes, parameters and the OpenAPI
// document come from it, the rest is net/http.
package api
