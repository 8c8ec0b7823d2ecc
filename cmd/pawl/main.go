// Command pawl owns operations at remote asynchronous APIs: it stores an intent
// before anything leaves, asks once, observes twice, settles once, and runs each
// side effect once.
//
// One binary holds everything: `pawl serve` runs all roles with NATS embedded,
// or against a NATS cluster; `pawl demo` shows the whole loop against a provider
// that misbehaves; the other subcommands talk to a running service. This package
// is the only one that reads environment, flags and signals, and the one that
// wires the parts. A subcommand is a file; DESIGN.md lists every goroutine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Exit codes, documented in the README.
const (
	exitOK      = 0
	exitError   = 1 // something failed; the message says what
	exitUsage   = 2 // the command line or the configuration is wrong
	exitBroken  = 3 // demo: a promise was broken
	exitRefused = 4 // submit: the intent was refused
	exitMissing = 5 // get: there is no such operation
)

// exitError carries an exit code through cobra.
type exitErr struct {
	code int
	err  error
}

func (e *exitErr) Error() string { return e.err.Error() }
func (e *exitErr) Unwrap() error { return e.err }

func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitErr{code: code, err: err}
}

func main() { os.Exit(Main()) }

// Main runs the command line of the process and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return run(ctx, os.Args[1:], os.Stdout, os.Stderr)
}

// run executes one command line. Data goes to stdout, messages to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil || (errors.Is(err, context.Canceled) && ctx.Err() != nil) {
		return exitOK
	}
	_, _ = fmt.Fprintln(stderr, "pawl: "+err.Error()) // nowhere else to say it
	var coded *exitErr
	if errors.As(err, &coded) {
		return coded.code
	}
	return exitError
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:           "pawl",
		Short:         "Operations at remote asynchronous APIs: asked once, observed twice, settled once, never lost",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          usage(cobra.NoArgs),
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return withCode(exitUsage, err) })
	root.AddCommand(newServe(), newDemo(), newSubmit(), newGet(), newList(), newWatch(), newVersion())
	return root
}

// usage gives a wrong number of arguments the exit code of wrong usage.
func usage(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error { return withCode(exitUsage, check(c, args)) }
}

// newLogger writes JSON, or text when a person reads along.
func newLogger(w io.Writer, level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return slog.New(slog.NewTextHandler(w, opts))
	}
	return slog.New(slog.NewJSONHandler(w, opts))
}
