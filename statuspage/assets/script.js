// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

// The page works without this. With it, it is kept up to date: the server sends
// the regions that have changed, and they are put in without disturbing what is
// focused, selected or scrolled.
(() => {
  'use strict';

  const said = document.getElementById('said');
  const button = document.getElementById('live');
  const text = document.getElementById('text');
  let source = null; // the stream, while there is one
  let paused = false;
  let retry = 0; // a timer
  const login = 'reload the page if you have to log in again';
  let announce = ''; // what to tell a screen reader once new content is there

  function show(state, label) {
    button.className = state;
    button.textContent = label;
    button.setAttribute('aria-label', label + ': ' + (paused ? 'go on updating this page' : 'pause the updates of this page'));
  }

  function disconnect() {
    clearTimeout(retry);
    if (source) source.close();
    source = null;
  }

  // connect follows the page that the address bar names. While paused, it only
  // fetches it once.
  function connect() {
    disconnect();
    if (document.hidden) return;
    const url = new URL('events' + location.search, location.href);
    const stream = source = new EventSource(url);
    let polls = false; // the server cannot keep the stream open
    let polled = false; // nor this one, so that it ends soon
    stream.addEventListener('regions', (event) => {
      if (stream !== source) return;
      apply(JSON.parse(event.data));
      if (paused) disconnect();
      else if (!polls) show('', 'Live');
    });
    stream.addEventListener('polled', () => {
      if (stream !== source || paused) return;
      polls = polled = true;
      show('', 'Updated every 5 seconds');
    });
    stream.onerror = () => {
      if (stream !== source) return;
      const ended = stream.readyState === EventSource.CLOSED; // by an answer that is no stream
      polls = polled && !ended;
      polled = false;
      if (!paused && !polls) show('lost', 'Reconnecting' + (ended ? '; ' + login : ''));
      if (ended) {
        disconnect();
        retry = setTimeout(connect, 3000);
      }
    };
  }

  function apply(regions) {
    const focused = document.activeElement;
    for (const [id, html] of Object.entries(regions)) {
      const region = document.getElementById(id);
      if (!region) continue;
      const template = document.createElement('template');
      template.innerHTML = html; // made by html/template: what came from outside is text
      const had = region.contains(focused);
      morph(region, template.content);
      if (had && !focused.isConnected) region.focus({preventScroll: true});
    }
    if (focused.isConnected && focused !== document.activeElement && focused !== document.body) {
      focused.focus({preventScroll: true});
    }
    if (announce) {
      if (text) said.className = 'hidden';
      said.textContent = announce + (document.querySelector('.range:not(:empty), .empty')?.textContent || '');
      announce = '';
    }
  }

  const keyOf = (node) => node.nodeType === 1 ? node.getAttribute('data-key') : null;

  // morph makes the children of a node like those of another, and keeps those
  // that are there already: known by their keys, or else by their order.
  function morph(have, want) {
    const desired = [...want.childNodes];
    const keys = new Set(desired.map(keyOf));
    const keyed = new Map();
    for (const child of [...have.children]) {
      const key = keyOf(child);
      if (keys.has(key)) keyed.set(key, child);
      else if (key !== null) child.remove();
    }
    let at = have.firstChild;
    for (const next of desired) {
      const key = keyOf(next);
      const old = key === null ? at : keyed.get(key);
      if (!old || keyOf(old) !== key || old.nodeName !== next.nodeName) {
        have.insertBefore(next, at);
        continue;
      }
      keyed.delete(key);
      if (old === at) at = at.nextSibling;
      else (have.moveBefore || have.insertBefore).call(have, old, at); // the first keeps the focus within
      if (old.isEqualNode(next)) continue;
      if (old.nodeType !== 1) {
        old.nodeValue = next.nodeValue;
        continue;
      }
      attributes(old, next);
      morph(old, next);
    }
    while (have.childNodes.length > desired.length) have.lastChild.remove();
  }

  function attributes(have, want) {
    for (const {name} of [...have.attributes]) {
      if (!want.hasAttribute(name) && name !== 'open') have.removeAttribute(name);
    }
    for (const {name, value} of want.attributes) have.setAttribute(name, value);
  }

  // go follows a page under another URL.
  function go(url, how) {
    history[how](null, '', url);
    connect();
  }

  // Links that show other rows of the same page.
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[data-nav]');
    if (!link || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    announce = link.dataset.nav === 'page' ? 'Items ' : link.textContent.trim() + ', items ';
    go(link.href, 'pushState');
    if (link.dataset.nav === 'page') document.getElementById('items').scrollIntoView({block: 'start'});
  });

  addEventListener('popstate', () => {
    if (text) text.value = new URLSearchParams(location.search).get('search') || '';
    connect();
  });

  // Search as you type.
  if (text) {
    let typing = 0;
    const search = () => {
      clearTimeout(typing);
      const url = new URL(location.href);
      if (text.value) url.searchParams.set('search', text.value);
      else url.searchParams.delete('search');
      url.searchParams.delete('page');
      if (url.href === location.href) return;
      announce = 'Items ';
      go(url, 'replaceState');
    };
    text.addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(search, 150);
    });
    text.form.addEventListener('submit', (event) => {
      event.preventDefault();
      search();
    });
  }

  // Actions, without leaving the page.
  document.addEventListener('submit', async (event) => {
    const form = event.target;
    const action = event.submitter?.dataset.action || form.dataset.action;
    if (!action) return;
    event.preventDefault();
    const body = new URLSearchParams(new FormData(form, event.submitter));
    said.textContent = '';
    if (text) said.className = 'tell'; // not on the page of an item, where it has a place
    try {
      const answer = await fetch(action, {method: 'POST', body});
      const {message, error} = await answer.json();
      said.textContent = message || error;
      if (message) form.reset();
    } catch {
      said.textContent = 'The program did not answer; ' + login + '.';
    }
    if (!paused) connect(); // to see at once what came of it
  });

  button.addEventListener('click', () => {
    paused = !paused;
    show(paused ? 'paused' : '', paused ? 'Paused' : 'Live');
    follow();
  });

  // Nobody looks at a hidden tab, so nothing is sent to it.
  function follow() {
    if (paused || document.hidden) disconnect();
    else connect();
  }
  document.addEventListener('visibilitychange', follow);
  addEventListener('pagehide', disconnect);
  addEventListener('pageshow', follow);

  button.hidden = false;
  show('', 'Live');
})();
