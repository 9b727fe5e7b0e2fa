// Copyright 2026 The reconcile Authors
// SPDX-License-Identifier: Apache-2.0

package postgres

// This file has the statements, and with them the rules of the kernel's state table in SQL.
// An item is ready if due <= now, so no statement is needed when its time has come. LEAST
// and GREATEST ignore NULL: a next run that does not exist is never the earlier one, and a
// not_before that does not exist is never the later one.
//
// A statement sees the rows that were committed when it began. A row that it has to lock
// may be newer: PostgreSQL then checks the condition on that row again, but takes the rows
// of all other tables and of subqueries from before. So no statement here decides about a row
// that it locks by a subquery that may have changed. Where it needs another row, it locks that
// too, or the other row is one that never comes back.
//
// Deadlocks: in the transaction of an exchange, only sqlAsk waits for locks. It comes first,
// and locks its rows in the order of the items. The statements after it skip locked rows.
// sqlMerge and sqlCheck are transactions of their own, and lock in the same order.

// sqlAsk applies verbs, at most one for each item. Each asks for a row as it would be for an
// unknown item:
//
//	Enqueue, EnqueueWithin  due, no not_before
//	EnqueueAfter            due = not_before
//	EnqueueNow              due now, not_before -infinity
//	Offer                   due now, recheck
const sqlAsk = `
WITH a AS (
	SELECT * FROM unnest($2::text[], $3::text[], $4::bigint[]) AS a(item, verb, delay)
), ` + sqlAsked + `
SELECT count(*) FROM changed`

// sqlAsked applies the verbs in a. A row of changed is one of an item that it changed.
const sqlAsked = `asked AS (
	SELECT item, statement_timestamp() AS now, statement_timestamp() + delay * interval '1 microsecond' AS due,
		CASE verb WHEN 'after' THEN statement_timestamp() + delay * interval '1 microsecond' WHEN 'now' THEN '-infinity' END AS not_before,
		verb = 'offer' AS recheck
	FROM a
), changed AS (
	INSERT INTO reconcile.item AS i (queue, item, due, not_before, recheck, since, pending)
	SELECT $1, item, due, not_before, recheck, now, now FROM asked ORDER BY item COLLATE "C"
	ON CONFLICT (queue, item) DO UPDATE SET
		due = CASE
			WHEN excluded.recheck OR excluded.not_before = '-infinity' THEN LEAST(i.due, excluded.due)
			WHEN excluded.not_before IS NULL THEN LEAST(i.due, GREATEST(excluded.due, i.not_before))
			WHEN i.due IS NULL OR i.due > excluded.since AND excluded.due <= i.due AND i.not_before IS DISTINCT FROM i.due
				THEN GREATEST(excluded.due, i.not_before)
			ELSE i.due END,
		not_before = CASE
			WHEN excluded.not_before = '-infinity' THEN excluded.not_before
			WHEN excluded.not_before IS NOT NULL AND (i.due IS NULL OR i.due > excluded.since AND excluded.due <= i.due AND i.not_before IS DISTINCT FROM i.due)
				THEN GREATEST(excluded.due, i.not_before)
			ELSE i.not_before END,
		recheck = false,
		pending = CASE WHEN i.recheck THEN LEAST(i.due, excluded.since) ELSE i.pending END,
		since = CASE WHEN i.owner IS NULL AND i.due > excluded.since
				AND (excluded.recheck OR excluded.not_before = '-infinity' OR excluded.not_before IS NULL AND GREATEST(excluded.due, i.not_before) <= excluded.since)
			THEN excluded.since ELSE i.since END
	WHERE CASE WHEN excluded.recheck THEN i.recheck AND i.due > excluded.since
		ELSE i.due IS NULL OR i.due > excluded.since OR i.recheck
			OR i.owner IS NOT NULL AND excluded.not_before = '-infinity' AND i.not_before IS DISTINCT FROM excluded.not_before END
	RETURNING 1
)`

// sqlGive gives runs back. A run is named by its owner and fence, here and below: fences begin
// again after a failover that lost commits, and a restore. It returns the items whose rows are
// locked, which are tried again; all others were given back, or are not ours any more.
const sqlGive = `
WITH given AS (
	SELECT * FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[], $8::text[]) AS g(item, owner, fence, how, delay, min_delay, err)
), mine AS (
	SELECT i.item, i.due, i.not_before, i.since, i.pending, i.failures, i.err AS last_err, g.how, g.err,
		statement_timestamp() AS now,
		CASE WHEN g.how NOT IN ('done', 'gaveup') THEN statement_timestamp() + g.delay * interval '1 microsecond' END AS own,
		CASE WHEN g.min_delay > 0 AND i.not_before IS DISTINCT FROM '-infinity' THEN statement_timestamp() + g.min_delay * interval '1 microsecond' END AS minimum
	FROM given g JOIN reconcile.item i ON i.queue = $1 AND i.item = g.item
	WHERE i.owner = g.owner AND i.fence = g.fence
	FOR UPDATE OF i SKIP LOCKED
), next AS (
	SELECT *, CASE WHEN how = 'abort' OR not_before = '-infinity' THEN now ELSE GREATEST(LEAST(due, own), minimum,
			CASE WHEN LEAST(due, own) IS NOT NULL THEN now END) END AS next_due,
		CASE WHEN how = 'abort' OR not_before = '-infinity' THEN NULL
			WHEN due <= own OR own IS NULL THEN GREATEST(not_before, minimum) ELSE minimum END AS next_not_before
	FROM (SELECT item, due, not_before, since, pending, failures, last_err, how, err, now, own,
		CASE WHEN due IS NOT NULL OR own IS NOT NULL THEN minimum END AS minimum FROM mine) m
), done AS (
	DELETE FROM reconcile.item i USING next n WHERE i.queue = $1 AND i.item = n.item AND n.next_due IS NULL
), again AS (
	UPDATE reconcile.item i SET owner = NULL, due = n.next_due, not_before = n.next_not_before, since = n.now,
		recheck = n.how = 'recheck' AND n.due IS NULL AND n.own > n.now,
		pending = CASE WHEN n.how = 'recheck' AND n.due IS NULL AND n.own > n.now THEN NULL WHEN n.how IN ('recheck', 'done') THEN n.since ELSE n.pending END,
		failures = CASE n.how WHEN 'abort' THEN n.failures WHEN 'fail' THEN n.failures + 1 ELSE 0 END,
		err = CASE n.how WHEN 'abort' THEN n.last_err WHEN 'done' THEN NULL WHEN 'gaveup' THEN NULL ELSE n.err END
	FROM next n WHERE i.queue = $1 AND i.item = n.item AND n.next_due IS NOT NULL
)
SELECT g.item FROM given g JOIN reconcile.item i ON i.queue = $1 AND i.item = g.item
WHERE i.owner = g.owner AND i.fence = g.fence AND NOT EXISTS (SELECT FROM mine WHERE mine.item = g.item)`

// sqlTake takes ready items for a member whose lease is valid, but none of those in $4, whose
// runs here have not ended.
const sqlTake = `
WITH ready AS (
	SELECT item FROM reconcile.item
	WHERE queue = $1 AND owner IS NULL AND due <= statement_timestamp() AND item <> ALL ($4::text[])
		AND EXISTS (SELECT FROM reconcile.member WHERE id = $2 AND until > statement_timestamp())
	ORDER BY due LIMIT $3 FOR UPDATE SKIP LOCKED
)
UPDATE reconcile.item i SET owner = $2, fence = nextval('reconcile.fence'), since = statement_timestamp(),
	pending = CASE WHEN recheck THEN due ELSE pending END, due = NULL, not_before = NULL, recheck = false
FROM ready r WHERE i.queue = $1 AND i.item = r.item
RETURNING i.item, i.fence, i.failures, COALESCE(i.err, ''), i.since, i.pending`

// sqlNext says in how many seconds the next item is due, and whether one is ready that was
// not taken.
const sqlNext = `
SELECT EXTRACT(epoch FROM (SELECT due FROM reconcile.item
		WHERE queue = $1 AND owner IS NULL AND due > statement_timestamp() ORDER BY due LIMIT 1) - statement_timestamp())::float8,
	EXISTS (SELECT FROM reconcile.item WHERE queue = $1 AND owner IS NULL AND due <= statement_timestamp())`

// sqlWake notifies the processes that wait, if an item is still ready. It is a transaction of
// its own that writes nothing. With a write, NOTIFY would make its commit hold a lock of
// the whole server while it waits for the disk, and all exchanges would go one by one.
const sqlWake = `
SELECT pg_notify($2, '') FROM (SELECT) x
WHERE EXISTS (SELECT FROM reconcile.item WHERE queue = $1 AND owner IS NULL AND due <= statement_timestamp())`

// sqlHello asks PostgreSQL to notify this process, to see whether it hears.
const sqlHello = `SELECT pg_notify($1, 'hello')`

// sqlEvents is what EnqueueTx does.
const sqlEvents = `
WITH e AS (INSERT INTO reconcile.event (queue, item) SELECT $1, unnest($2::text[]))
SELECT pg_notify($3, 'event') WHERE NOT $4`

// sqlMerge merges events of users into items, and says how many.
const sqlMerge = `
WITH event AS (
	DELETE FROM reconcile.event WHERE queue = $1 AND id = ANY (ARRAY(
		SELECT id FROM reconcile.event WHERE queue = $1 ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING item
), a AS (
	SELECT DISTINCT item, 'within' AS verb, 0 AS delay FROM event
), ` + sqlAsked + `
SELECT count(*) FROM event`

// sqlRemove cancels the next run of an item.
const sqlRemove = `
WITH old AS (SELECT owner, due FROM reconcile.item WHERE queue = $1 AND item = $2 FOR UPDATE),
gone AS (DELETE FROM reconcile.item i USING old WHERE i.queue = $1 AND i.item = $2 AND old.owner IS NULL),
kept AS (UPDATE reconcile.item i SET due = NULL, not_before = NULL FROM old WHERE i.queue = $1 AND i.item = $2 AND old.owner IS NOT NULL)
SELECT COALESCE(bool_or(due IS NOT NULL), false) FROM old`

// The lease of a process.
const (
	sqlJoin = `INSERT INTO reconcile.member (id, queue, name, until) VALUES ($1, $2, $3, clock_timestamp() + $4 * interval '1 microsecond')`

	sqlRenew = `UPDATE reconcile.member SET until = clock_timestamp() + $2 * interval '1 microsecond' WHERE id = $1`

	sqlLeave = `DELETE FROM reconcile.member WHERE id = $1`
)

// sqlReap deletes the members whose lease is over, and frees their items: a failure of each
// run, because an item may be the reason why its process died. Such an item is ready at
// once after its first failure, and held for 1 s to $3 s after further ones.
//
// It locks the row of a member to judge it, because a renewal may have begun in time and
// end later; and a deleted member cannot be renewed, whatever the clock says later. An item
// is freed only if its owner is one of those members, or one whose row was not there: its
// owner may be another by the time that it is locked, one that this statement cannot see. An
// item that is locked is left to the next time.
const sqlReap = `
WITH expired AS (
	DELETE FROM reconcile.member WHERE id = ANY (ARRAY(
		SELECT id FROM reconcile.member WHERE queue = $1 AND until <= clock_timestamp() FOR UPDATE SKIP LOCKED)) RETURNING id AS owner
), gone AS MATERIALIZED (
	SELECT owner FROM expired
	UNION
	SELECT owner FROM reconcile.item i
	WHERE queue = $1 AND owner IS NOT NULL AND NOT EXISTS (SELECT FROM reconcile.member m WHERE m.id = i.owner)
), dead AS (
	SELECT i.item, i.not_before IS NOT DISTINCT FROM '-infinity' AS at_once,
		statement_timestamp() + CASE WHEN failures = 0 THEN 0 ELSE LEAST($3::float8, 2 ^ (LEAST(failures, 9) - 1)) END * interval '1 second' AS due
	FROM reconcile.item i JOIN gone ON gone.owner = i.owner WHERE queue = $1
	FOR UPDATE OF i SKIP LOCKED
)
UPDATE reconcile.item i SET owner = NULL, since = statement_timestamp(), failures = i.failures + 1, err = $2,
	due = CASE WHEN dead.at_once THEN statement_timestamp() ELSE dead.due END,
	not_before = CASE WHEN dead.at_once THEN NULL ELSE dead.due END
FROM dead WHERE i.queue = $1 AND i.item = dead.item`

// sqlCheck compares the runs that a member has by its own account with those in the table. It
// frees those that the member does not know: they were taken by an exchange whose answer
// was lost. It returns the items of the runs that the table does not have.
const sqlCheck = `
WITH known AS (
	SELECT * FROM unnest($3::text[], $4::bigint[]) AS k(item, fence)
), unknown AS (
	SELECT item FROM reconcile.item WHERE queue = $1 AND owner = $2 AND (item, fence) NOT IN (SELECT * FROM known) ORDER BY item FOR NO KEY UPDATE
), freed AS (
	UPDATE reconcile.item i SET owner = NULL, since = statement_timestamp(), due = statement_timestamp(), not_before = NULL
	FROM unknown u WHERE i.queue = $1 AND i.item = u.item
)
SELECT item FROM known k WHERE NOT EXISTS (SELECT FROM reconcile.item i WHERE i.queue = $1 AND i.item = k.item AND i.owner = $2 AND i.fence = k.fence)`

// sqlGuard locks the row of a run against all who would take it over, until the end of the
// transaction. It does not block verbs.
const sqlGuard = `SELECT FROM reconcile.item WHERE queue = $1 AND item = $2 AND owner = $3 AND fence = $4 FOR KEY SHARE`

// sqlState reads items: $2 is one, or NULL for all.
const sqlState = `
SELECT item, owner IS NOT NULL, due <= statement_timestamp(), due, CASE WHEN not_before > statement_timestamp() THEN not_before END,
	recheck, since, pending, failures, COALESCE(err, '')
FROM reconcile.item WHERE queue = $1 AND ($2::text IS NULL OR item = $2) ORDER BY item`

const sqlStats = `
SELECT count(*) FILTER (WHERE owner IS NULL AND due <= statement_timestamp()), count(*) FILTER (WHERE owner IS NULL AND due > statement_timestamp()),
	count(*) FILTER (WHERE owner IS NOT NULL), count(*) FILTER (WHERE owner IS NULL AND recheck AND due > statement_timestamp()),
	count(*) FILTER (WHERE owner IS NOT NULL AND due <= statement_timestamp())
FROM reconcile.item WHERE queue = $1`
