package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// client talks to the HTTP API of a running service.
type client struct {
	base string
	http http.Client
}

// answerMaxBytes bounds what a client reads of one answer.
const answerMaxBytes = 64 << 20

func addServerFlag(c *cobra.Command) *string {
	def := os.Getenv("PAWL_SERVER")
	if def == "" {
		def = "http://127.0.0.1:8480"
	}
	return c.Flags().String("server", def, "URL of the service; also PAWL_SERVER")
}

func newClient(server string) *client {
	return &client{base: strings.TrimRight(server, "/"), http: http.Client{Timeout: 90 * time.Second}}
}

// problem is the part of RFC 9457 that a person reads.
type problem struct {
	Status int    `json:"status"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
	Errors []struct {
		Location string `json:"location"`
		Message  string `json:"message"`
	} `json:"errors"`
}

func (p *problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Title)
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		fmt.Fprintf(&b, "\n  %s: %s", e.Location, e.Message)
	}
	return b.String()
}

// do makes one call and decodes a 2xx answer into out. Another status is a
// *problem.
func (c *client) do(ctx context.Context, method, path string, body []byte, header http.Header, out any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w (is the service running? start it with: pawl serve)", err)
	}
	defer func() { _ = resp.Body.Close() }() // read or given up
	data, err := io.ReadAll(io.LimitReader(resp.Body, answerMaxBytes))
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		p := &problem{Status: resp.StatusCode}
		if json.Unmarshal(data, p) != nil || p.Title == "" {
			p.Title = resp.Status
		}
		p.Status = resp.StatusCode
		return resp.Header, p
	}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	return resp.Header, nil
}

// operationView is what the commands show of an operation.
type operationView struct {
	OperationID string    `json:"operation_id"`
	Provider    string    `json:"provider"`
	State       string    `json:"state"`
	Why         string    `json:"why"`
	Because     string    `json:"because"`
	Evidence    []uint64  `json:"evidence"`
	Outcome     string    `json:"outcome"`
	CreatedAt   time.Time `json:"created_at"`
	Next        string    `json:"next"`
	NextDue     time.Time `json:"next_due"`
}

// clientErr gives a missing operation its own exit code.
func clientErr(err error) error {
	var p *problem
	if errors.As(err, &p) && p.Status == http.StatusNotFound {
		return withCode(exitMissing, err)
	}
	if errors.As(err, &p) && (p.Status == http.StatusUnprocessableEntity || p.Status == http.StatusBadRequest) {
		return withCode(exitRefused, err)
	}
	return err
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func operationPath(id string) string { return "/v1/operations/" + url.PathEscape(id) }
