-- The desired buckets. The service runs this at each start: it changes nothing that is there.

CREATE TABLE IF NOT EXISTS bucket (
	name       text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$'),
	versioning boolean NOT NULL DEFAULT false,
	team       text    NOT NULL DEFAULT '' CHECK (length(team) <= 256), -- the tag "team"; '' means no tag
	deleted    boolean NOT NULL DEFAULT false,    -- the mark: the bucket must not exist
	status     text    NOT NULL DEFAULT 'pending' -- pending, ok, deleted, or the last error; written by the service
);

-- A change of the desired state is an event, and the status begins again. The trigger names
-- the columns, so that a write of the status is no event.
CREATE OR REPLACE FUNCTION bucket_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('buckets', NEW.name);
	NEW.status := 'pending';
	RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER changes BEFORE INSERT OR UPDATE OF name, versioning, team, deleted ON bucket
	FOR EACH ROW EXECUTE FUNCTION bucket_changes();
