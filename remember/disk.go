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
	read(path string) ([]byte, error) // nil if it is not there
	append(path string) (file, error) // which is there
	create(path string) (file, error) // or makes it empty
	isAt(f file, path string) error   // an error if path is another file by now, or none
	rename(from, to string) error
	remove(path string)
	syncDir(path string) error // the folder that path is in
	lock(path string) (io.Closer, error)
}

type file interface {
	io.WriteCloser
	Sync() error
	Truncate(size int64) error
}

type osDisk struct{}

// resolve follows symbolic links: one that was renamed to would be a file from then on,
// in another place; and by two names two processes would have two locks.
func (osDisk) resolve(path string) (string, error) {
	to, err := filepath.EvalSymlinks(path)
	if err == nil {
		info, err := os.Stat(to)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("it is %v, want a regular file", info.Mode())
		}
		return to, err
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return to, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", errors.New("it is a symbolic link to nothing")
	}
	return path, nil
}

func (osDisk) read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (osDisk) append(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
}

func (osDisk) create(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (osDisk) isAt(f file, path string) error {
	open, err := f.(*os.File).Stat()
	if err != nil {
		return err
	}
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(open, there) {
		return errMoved
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
