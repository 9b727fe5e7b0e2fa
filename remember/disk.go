// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// A disk is what a File needs of a file system. Tests have one that fails, loses
// power, and is killed between any two calls.
type disk interface {
	resolve(path string) (string, error)
	lock(path string) (io.Closer, error)
	read(path string) ([]byte, error)
	open(path string, flag int) (file, error)
	isAt(f file, path string) error // an error if path is another file by now, or none
	rename(from, to string) error
	remove(path string)
	syncDir(path string) error // the folder that path is in
}

type file interface {
	io.WriterAt
	io.Closer
	Sync() error
	Truncate(size int64) error
}

type osDisk struct{}

// resolve follows symbolic links: one that was renamed to would be a file from then on,
// in another place; and by two names two processes would have two locks.
func (osDisk) resolve(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is %v", info.Mode())
	}
	if err != nil {
		return "", fmt.Errorf("want a regular file, or a symbolic link to one: %w", err)
	}
	return filepath.EvalSymlinks(path)
}

func (osDisk) read(path string) ([]byte, error) { return os.ReadFile(path) }

func (osDisk) open(path string, flag int) (file, error) { return os.OpenFile(path, flag, 0o600) }

func (osDisk) isAt(f file, path string) error {
	open, _ := f.(*os.File).Stat()
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(open, there) {
		err = errors.New("the file was moved away, removed or replaced")
	}
	return err
}

func (osDisk) rename(from, to string) error { return os.Rename(from, to) }

func (osDisk) remove(path string) { _ = os.Remove(path) } // it is of no use, and no harm

func (osDisk) syncDir(path string) error {
	if runtime.GOOS == "windows" { // which has no such thing
		return nil
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
