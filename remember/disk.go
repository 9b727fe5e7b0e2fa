// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package remember

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// A disk is what a File needs of a file system. Tests have one that fails, loses
// power, and is killed between any two calls.
type disk interface {
	resolve(path string) (string, error)
	lock(path string) (io.Closer, error)
	read(path string) ([]byte, error)
	open(path string) (file, error)         // to be written to
	create(path, like string) (file, error) // a new one with the mode and the owner of like, in the place of what is there
	isAt(f file, path string) error         // an error if path is another file by now, or none
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
// in another place; and by two names two processes would have two locks. Nor does the path
// change with the working directory. Abs comes last, because it takes link/.. for nothing.
func (osDisk) resolve(path string) (string, error) {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		dir, name := filepath.Split(path)
		if dir, err = filepath.EvalSymlinks(cmp.Or(dir, ".")); err == nil { // otherwise lock has the error
			path = filepath.Join(dir, name)
		}
		return filepath.Abs(path)
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is %v", info.Mode())
	}
	if err != nil {
		return "", fmt.Errorf("want a regular file, or a symbolic link to one: %w", err)
	}
	path, err = filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

func (osDisk) read(path string) ([]byte, error) { return os.ReadFile(path) }

func (osDisk) open(path string) (file, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	return f, exclude(f)
}

// create neither writes through a link that somebody put there nor waits for the
// reader of a pipe.
func (osDisk) create(path, like string) (file, error) {
	_ = os.Remove(path) // if that fails, so does what follows
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(like); err == nil {
		if err := f.Chmod(info.Mode().Perm()); err != nil {
			f.Close()
			return nil, err
		}
		own(f, info) // last: without CAP_FOWNER root may not change the mode of another user's file
	}
	return f, nil
}

func (osDisk) isAt(f file, path string) error {
	open, _ := f.(*os.File).Stat()
	there, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(open, there) {
		err = errors.New("the file was moved away, removed or replaced")
	}
	return err
}

func (osDisk) rename(from, to string) error { return explained(os.Rename(from, to)) }

// errMountPoint is why a file that is mounted by itself cannot be replaced.
var errMountPoint = errors.New("it is a mount point and cannot be replaced: mount its folder instead of the file")

// explained adds the reason to the error of a rename to a mount point.
func explained(err error) error {
	if errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("%w: %w", errMountPoint, err)
	}
	return err
}

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
