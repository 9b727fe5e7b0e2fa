-- The tables of adapters/postgres, version 1. Migrate runs this file. You can also copy it
-- into the migrations of a service: it may run any number of times.

CREATE SCHEMA IF NOT EXISTS reconcile;

-- One row for each item that a queue knows. An item at rest has no owner and a due time, and
-- is ready once that has come. An item in flight has an owner, and a due time only if it has
-- a next run. A next run that EnqueueNow asked for has not_before = '-infinity'. An item that
-- Offer made ready is a recheck that is due.
CREATE TABLE IF NOT EXISTS reconcile.item (
	queue      text COLLATE "C" NOT NULL,
	item       text COLLATE "C" NOT NULL,
	owner      bigint,                          -- the member in which it is in flight
	fence      bigint,                          -- of the last time that it was handed out
	due        timestamptz,                     -- of the next run, at the latest
	not_before timestamptz,                     -- no event starts the next run sooner
	recheck    boolean     NOT NULL DEFAULT false,
	since      timestamptz NOT NULL,            -- when it entered its phase
	pending    timestamptz,                     -- since when there is work
	failures   int         NOT NULL DEFAULT 0,  -- in a row
	err        text,                            -- the last failure, or the reason of a scheduled run
	PRIMARY KEY (queue, item)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS item_due ON reconcile.item (queue, due) WHERE owner IS NULL;
CREATE INDEX IF NOT EXISTS item_owner ON reconcile.item (queue, owner) WHERE owner IS NOT NULL;
CREATE SEQUENCE IF NOT EXISTS reconcile.fence;

-- One row for each process that takes items of a queue. The process draws the id at random, so
-- none comes again when commits are lost. Until is the end of its lease.
CREATE TABLE IF NOT EXISTS reconcile.member (
	id    bigint      PRIMARY KEY,
	queue text        NOT NULL,
	name  text        NOT NULL,
	since timestamptz NOT NULL DEFAULT clock_timestamp(),
	until timestamptz NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

-- Events that transactions of users, or triggers, have inserted, until they are merged into
-- item. It has only inserts, so such a transaction and the queue never wait for each other.
CREATE TABLE IF NOT EXISTS reconcile.event (
	queue text   COLLATE "C" NOT NULL,
	id    bigint GENERATED ALWAYS AS IDENTITY,
	item  text   COLLATE "C" NOT NULL CHECK (octet_length(item) <= 1000),
	PRIMARY KEY (queue, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

CREATE TABLE IF NOT EXISTS reconcile.version (version int PRIMARY KEY);
INSERT INTO reconcile.version VALUES (1) ON CONFLICT DO NOTHING;

-- For triggers, psql and other languages: SELECT reconcile.enqueue('vms', NEW.id::text).
-- With quiet, no NOTIFY wakes a process: the event waits for the next poll.
CREATE OR REPLACE FUNCTION reconcile.enqueue(queue text, item text, quiet boolean DEFAULT false) RETURNS void LANGUAGE sql AS $$
	INSERT INTO reconcile.event (queue, item) VALUES ($1, $2);
	SELECT pg_notify('reconcile.' || $1, 'event') WHERE NOT $3;
$$;
