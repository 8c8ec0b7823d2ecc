//go:build !unix

package streams

import (
	"errors"
	"fmt"
	"os"
)

// takeLock refuses: without a lock that dies with its process two servers could
// write into one directory. An external NATS server works everywhere.
func takeLock(path string) (*os.File, error) {
	return nil, fmt.Errorf("lock %s: %w: the embedded server runs on Unix systems only; use an external NATS server", path, errors.ErrUnsupported)
}

func freeBytes(string) (int64, error) { return 0, errors.ErrUnsupported }
