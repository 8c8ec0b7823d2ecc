package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// demoTally is where the operations of a demo stand.
type demoTally struct {
	Unknown, Open, InDoubt, Confirming, Settled, Review int
}

// known is how many operations the bucket holds.
func (t demoTally) known() int { return t.Open + t.Settled + t.Review }

// progress shows a demo's progress: one line that is drawn again on a terminal,
// a plain line now and then elsewhere, nothing with --json.
type progress struct {
	w     io.Writer
	live  bool
	fd    int // of the terminal
	quiet bool
	last  time.Duration
}

// plainEvery paces the plain lines.
const plainEvery = 2 * time.Second

// barWidth is the width of the live bar.
const barWidth = 30

func newProgress(w io.Writer, quiet bool) *progress {
	p := &progress{w: w, quiet: quiet, last: -plainEvery}
	if f, ok := w.(*os.File); ok {
		p.fd = int(f.Fd())
		p.live = term.IsTerminal(p.fd)
	}
	return p
}

func (p *progress) update(t demoTally, elapsed time.Duration) {
	if p.quiet {
		return
	}
	text := fmt.Sprintf("%5.1f s  settled %d  review %d  open %d (in doubt %d, confirming %d)", elapsed.Seconds(), t.Settled, t.Review, t.Open+t.Unknown, t.InDoubt, t.Confirming)
	switch {
	case p.live:
		if cols, _, err := term.GetSize(p.fd); err == nil && len(text)+barWidth+4 > cols {
			text = fmt.Sprintf("%5.1f s  %d of %d", elapsed.Seconds(), t.Settled+t.Review, t.Unknown+t.known())
		}
		total := max(t.Unknown+t.known(), 1)
		full := barWidth * (t.Settled + t.Review) / total
		_, _ = fmt.Fprintf(p.w, "\r\033[K[%s%s] %s", strings.Repeat("█", full), strings.Repeat("·", barWidth-full), text) // progress only
	case elapsed-p.last >= plainEvery:
		p.last = elapsed
		_, _ = fmt.Fprintln(p.w, text) // progress only
	}
}

func (p *progress) done() {
	if p.live && !p.quiet {
		_, _ = fmt.Fprintln(p.w) // progress only
	}
}
