// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A Client speaks to the cloud for one tenant. URL and Tenant are required.
// All methods may be called from any goroutine; they block until the answer is
// there or ctx is done.
type Client struct {
	URL    string
	Tenant string
	HTTP   *http.Client // nil means http.DefaultClient
}

// Get returns an asset as it is now, or an error that matches [ErrNotFound].
func (c *Client) Get(ctx context.Context, id ID) (Asset, error) {
	var a Asset
	err := c.call(ctx, "GET", assetPath(id), nil, nil, &a)
	return a, err
}

// List returns all assets of one kind or, if there are names, those of them that are
// there, by one call.
func (c *Client) List(ctx context.Context, kind string, names ...string) ([]Asset, error) {
	var list struct {
		Items []Asset `json:"items"`
	}
	path := "/v1/" + kind + "s"
	if len(names) > 0 {
		path += "?" + url.Values{"name": names}.Encode()
	}
	err := c.call(ctx, "GET", path, nil, nil, &list)
	return list.Items, err
}

// Create starts the creation of an asset, and returns what is there of it.
func (c *Client) Create(ctx context.Context, id ID, spec Spec) (Asset, error) {
	body := struct {
		Name string `json:"name"`
		Spec `json:"spec"`
	}{id.Name, spec}
	var a Asset
	err := c.call(ctx, "POST", "/v1/"+id.Kind+"s", nil, body, &a)
	return a, err
}

// Update changes an asset, if it still has the version given: otherwise it fails
// with status 412.
func (c *Client) Update(ctx context.Context, id ID, spec Spec, version int64) error {
	header := http.Header{"If-Match": {strconv.Quote(strconv.FormatInt(version, 10))}}
	return c.call(ctx, "PUT", assetPath(id), header, spec, nil)
}

// Delete removes an asset. That it is not there is not an error.
func (c *Client) Delete(ctx context.Context, id ID) error {
	err := c.call(ctx, "DELETE", assetPath(id), nil, nil, nil)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

func assetPath(id ID) string { return "/v1/" + id.Kind + "s/" + url.PathEscape(id.Name) }

// call sends one request and decodes the answer into out, unless out is nil.
func (c *Client) call(ctx context.Context, method, path string, header http.Header, in, out any) error {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	resp, err := c.send(ctx, method, path, header, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	// Read to the end, so that the connection can be used again.
	data, err := io.ReadAll(resp.Body)
	if err == nil && out != nil {
		err = json.Unmarshal(data, out)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// send sends one request. A status other than 2xx makes it an [Error].
func (c *Client) send(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+c.Tenant)
	resp, err := cmp.Or(c.HTTP, http.DefaultClient).Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	answer := &Error{Status: resp.StatusCode}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(data, answer) != nil || answer.Message == "" {
		answer.Message = http.StatusText(resp.StatusCode)
	}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		answer.RetryAfter = time.Duration(s) * time.Second
	}
	return nil, answer
}
