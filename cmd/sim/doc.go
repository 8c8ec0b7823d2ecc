// Command sim runs the production components of Pawl, single-threaded, over a
// stream server in memory, under a virtual clock, against providers and targets
// that misbehave, and kills its processes anywhere. It is how a change is trusted.
//
// One schedule is one life of a small installation, drawn from one seed: some
// operations, one or two processes, a provider with its habits. First everything
// may fail; then nothing fails any more, and what is left must drain. What the
// provider and the target wrote into their own books is compared with what the
// stream says. The same seed is the same schedule, to the last event.
//
//	go run ./cmd/sim -schedules 200000
//	go run ./cmd/sim -seed 4711 -v     # one schedule, told step by step
//
// How it works: every actor (a worker, the projector, a webhook on its way) is a
// coroutine. Each call of a port is a place where the simulation may switch to
// another actor, kill the actor's process before or after the effect, lose an
// answer, or let an hour pass. A killed process gets errors from every call until
// its code has returned; what it held in memory is gone, and a new one starts.
package main
