-- The tables of revision 0020 on PostgreSQL, as that version declared them, and the first project.
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO alembic_version VALUES('0020');
CREATE TABLE attempts (
	subject VARCHAR(300) NOT NULL,
	failures INTEGER NOT NULL,
	last_at BIGINT NOT NULL,
	PRIMARY KEY (subject)
);
CREATE TABLE audit (
	id SERIAL NOT NULL,
	at BIGINT NOT NULL,
	project_id VARCHAR(32),
	action VARCHAR(64) NOT NULL,
	actor VARCHAR(100) NOT NULL,
	actor_name TEXT NOT NULL,
	address VARCHAR(64) NOT NULL,
	subject VARCHAR(100) NOT NULL,
	details TEXT NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX audit_of_project ON audit (project_id, id);
CREATE TABLE encoders (
	worker VARCHAR(64) NOT NULL,
	facts TEXT NOT NULL,
	told_at BIGINT NOT NULL,
	PRIMARY KEY (worker)
);
CREATE TABLE facts (
	name VARCHAR(64) NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE made_files (
	version VARCHAR(32) NOT NULL,
	upload_id VARCHAR(32) NOT NULL,
	name VARCHAR(200) NOT NULL,
	folder VARCHAR(200) NOT NULL,
	length BIGINT NOT NULL,
	made_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,
	due_at BIGINT,
	PRIMARY KEY (version)
);
CREATE UNIQUE INDEX made_files_kept ON made_files (upload_id, folder, name) WHERE due_at IS NULL;
CREATE INDEX made_files_left ON made_files (due_at) WHERE due_at IS NOT NULL;
CREATE TABLE nodes (
	name VARCHAR(100) NOT NULL,
	address TEXT NOT NULL,
	version VARCHAR(32) NOT NULL,
	is_leaving BOOLEAN NOT NULL,
	counts TEXT NOT NULL,
	traffic TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	lease_until BIGINT NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE people (
	id VARCHAR(32) NOT NULL,
	email VARCHAR(254) NOT NULL,
	name TEXT NOT NULL,
	password_hash TEXT,
	is_admin BOOLEAN NOT NULL,
	is_blocked BOOLEAN NOT NULL,
	is_proven BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	visited_at BIGINT,
	PRIMARY KEY (id),
	UNIQUE (email)
);
CREATE TABLE projects (
	id VARCHAR(32) NOT NULL,
	name TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_bytes BIGINT NOT NULL,
	quota_bytes BIGINT,
	video_seconds FLOAT,
	PRIMARY KEY (id)
);
CREATE TABLE spent_tokens (
	id VARCHAR(32) NOT NULL,
	expires_at BIGINT NOT NULL,
	PRIMARY KEY (id)
);
CREATE TABLE stored_files (
	key VARCHAR(32) NOT NULL,
	cell_bytes BIGINT NOT NULL,
	length BIGINT,
	name VARCHAR(200),
	is_published BOOLEAN NOT NULL,
	multipart_name VARCHAR(200),
	multipart_id TEXT,
	crc32c VARCHAR(8),
	active_at BIGINT NOT NULL,
	PRIMARY KEY (key)
);
CREATE INDEX stored_files_unpublished ON stored_files (active_at, key) WHERE is_published = false;
CREATE TABLE stored_garbage (
	id BIGSERIAL NOT NULL,
	name VARCHAR(200) NOT NULL,
	multipart_id TEXT,
	due_at BIGINT NOT NULL,
	PRIMARY KEY (id)
);
CREATE INDEX ix_stored_garbage_due_at ON stored_garbage (due_at);
CREATE TABLE turns (
	work VARCHAR(64) NOT NULL,
	due_at BIGINT NOT NULL,
	PRIMARY KEY (work)
);
CREATE TABLE uploads (
	id VARCHAR(32) NOT NULL,
	owner VARCHAR(64) NOT NULL,
	sender VARCHAR(100) NOT NULL,
	client_key VARCHAR(200) NOT NULL,
	filename TEXT NOT NULL,
	length BIGINT,
	fingerprint VARCHAR(200),
	state VARCHAR(16) NOT NULL,
	created_at BIGINT NOT NULL,
	active_at BIGINT NOT NULL,
	published_at BIGINT,
	sha256 VARCHAR(64),
	crc32c VARCHAR(8),
	is_sha256_wanted BOOLEAN DEFAULT false NOT NULL,
	kind VARCHAR(16) NOT NULL,
	metadata TEXT,
	repr_digest VARCHAR(200),
	received BYTEA NOT NULL,
	sums BYTEA,
	reserved BIGINT,
	progress BIGINT DEFAULT 0 NOT NULL,
	is_stalled BOOLEAN DEFAULT false NOT NULL,
	search_name TEXT NOT NULL,
	sort_name BYTEA NOT NULL,
	retry_at BIGINT,
	PRIMARY KEY (id),
	CONSTRAINT uploads_client_key UNIQUE (owner, client_key)
);
CREATE INDEX uploads_by_activity ON uploads (state, active_at);
CREATE INDEX uploads_by_age ON uploads (owner, active_at, id) WHERE state = 'complete';
CREATE INDEX uploads_by_digest ON uploads (state, sha256, crc32c, active_at);
CREATE INDEX uploads_by_fingerprint ON uploads (owner, fingerprint);
CREATE INDEX uploads_by_length ON uploads (owner, length, id) WHERE state = 'complete';
CREATE INDEX uploads_by_name ON uploads (owner, sort_name, id) WHERE state = 'complete';
CREATE INDEX uploads_by_publication ON uploads (owner, published_at, id) WHERE state = 'complete';
CREATE INDEX uploads_by_sender ON uploads (sender, state) WHERE sender <> '';
CREATE INDEX uploads_reserving ON uploads (sender, reserved, id) WHERE reserved IS NOT NULL AND state IN ('receiving', 'held');
CREATE INDEX uploads_wanting_sha256 ON uploads (active_at) WHERE is_sha256_wanted;
CREATE INDEX uploads_without_length ON uploads (owner) WHERE state = 'receiving' AND length IS NULL;
CREATE TABLE webhook_events (
	number SERIAL NOT NULL,
	id VARCHAR(32) NOT NULL,
	project_id VARCHAR(32) NOT NULL,
	subject VARCHAR(32) NOT NULL,
	type VARCHAR(64) NOT NULL,
	payload TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (number),
	UNIQUE (id)
);
CREATE INDEX webhook_events_of_subject ON webhook_events (subject, number);
CREATE TABLE api_keys (
	id VARCHAR(32) NOT NULL,
	project_id VARCHAR(32) NOT NULL,
	digest VARCHAR(64) NOT NULL,
	hint VARCHAR(16) NOT NULL,
	name TEXT NOT NULL,
	role VARCHAR(16) NOT NULL,
	created_by TEXT NOT NULL,
	made_with VARCHAR(32),
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	used_at BIGINT,
	revoked_at BIGINT,
	PRIMARY KEY (id),
	FOREIGN KEY(project_id) REFERENCES projects (id) ON DELETE CASCADE,
	UNIQUE (digest)
);
CREATE INDEX api_keys_of_project ON api_keys (project_id);
CREATE TABLE invitations (
	digest VARCHAR(64) NOT NULL,
	purpose VARCHAR(16) NOT NULL,
	person_id VARCHAR(32),
	project_id VARCHAR(32),
	role VARCHAR(16),
	email VARCHAR(254),
	created_by TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	used_at BIGINT,
	PRIMARY KEY (digest),
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE,
	FOREIGN KEY(project_id) REFERENCES projects (id) ON DELETE CASCADE
);
CREATE TABLE media (
	upload_id VARCHAR(32) NOT NULL,
	state VARCHAR(16) NOT NULL,
	facts TEXT,
	problem_code VARCHAR(64),
	problem_detail TEXT,
	is_planned BOOLEAN NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (upload_id),
	FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
);
CREATE TABLE media_jobs (
	upload_id VARCHAR(32) NOT NULL,
	step VARCHAR(32) NOT NULL,
	argument VARCHAR(200) NOT NULL,
	lane VARCHAR(16) NOT NULL,
	priority INTEGER NOT NULL,
	state VARCHAR(16) NOT NULL,
	attempts INTEGER NOT NULL,
	is_renewed BOOLEAN NOT NULL,
	progress FLOAT NOT NULL,
	worker VARCHAR(64),
	problem_code VARCHAR(64),
	problem_detail TEXT,
	queued_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	due_at BIGINT NOT NULL,
	client VARCHAR(100) DEFAULT '' NOT NULL,
	turn INTEGER DEFAULT '0' NOT NULL,
	PRIMARY KEY (upload_id, step, argument),
	FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
);
CREATE INDEX media_jobs_by_client ON media_jobs (lane, client, priority, turn) WHERE state IN ('queued', 'running');
CREATE INDEX media_jobs_shown ON media_jobs (state, lane) WHERE state IN ('queued', 'running', 'failed');
CREATE INDEX media_jobs_unfinished ON media_jobs (lane, priority, turn, queued_at) WHERE state IN ('queued', 'running');
CREATE TABLE members (
	project_id VARCHAR(32) NOT NULL,
	person_id VARCHAR(32) NOT NULL,
	role VARCHAR(16) NOT NULL,
	added_at BIGINT NOT NULL,
	PRIMARY KEY (project_id, person_id),
	FOREIGN KEY(project_id) REFERENCES projects (id) ON DELETE CASCADE,
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE
);
CREATE INDEX members_of_person ON members (person_id);
CREATE TABLE parts (
	upload_id VARCHAR(32) NOT NULL,
	position INTEGER NOT NULL,
	part_id VARCHAR(32) NOT NULL,
	reference TEXT NOT NULL,
	PRIMARY KEY (upload_id, position),
	FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
);
CREATE INDEX ix_parts_part_id ON parts (part_id);
CREATE TABLE passkeys (
	id VARCHAR(32) NOT NULL,
	credential_id BYTEA NOT NULL,
	person_id VARCHAR(32) NOT NULL,
	public_key BYTEA NOT NULL,
	sign_count BIGINT NOT NULL,
	name TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at BIGINT,
	PRIMARY KEY (id),
	UNIQUE (credential_id),
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE
);
CREATE INDEX passkeys_of_person ON passkeys (person_id);
CREATE TABLE provider_accounts (
	issuer VARCHAR(300) NOT NULL,
	subject VARCHAR(255) NOT NULL,
	person_id VARCHAR(32) NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (issuer, subject),
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE
);
CREATE INDEX provider_accounts_of_person ON provider_accounts (person_id);
CREATE TABLE recovery_codes (
	digest VARCHAR(64) NOT NULL,
	person_id VARCHAR(32) NOT NULL,
	PRIMARY KEY (digest),
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE
);
CREATE INDEX recovery_codes_of_person ON recovery_codes (person_id);
CREATE TABLE second_factors (
	person_id VARCHAR(32) NOT NULL,
	secret VARCHAR(64) NOT NULL,
	last_step BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (person_id),
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE
);
CREATE TABLE sessions (
	digest VARCHAR(64) NOT NULL,
	id VARCHAR(32) NOT NULL,
	person_id VARCHAR(32) NOT NULL,
	project_id VARCHAR(32),
	method VARCHAR(16) NOT NULL,
	created_at BIGINT NOT NULL,
	active_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	address VARCHAR(64) NOT NULL,
	agent TEXT NOT NULL,
	PRIMARY KEY (digest),
	UNIQUE (id),
	FOREIGN KEY(person_id) REFERENCES people (id) ON DELETE CASCADE
);
CREATE INDEX sessions_of_person ON sessions (person_id);
CREATE TABLE share_links (
	id VARCHAR(32) NOT NULL,
	project_id VARCHAR(32) NOT NULL,
	code VARCHAR(64) NOT NULL,
	name TEXT NOT NULL,
	can_download BOOLEAN NOT NULL,
	password_hash TEXT,
	max_views INTEGER,
	views INTEGER NOT NULL,
	created_by TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	revoked_at BIGINT,
	PRIMARY KEY (id),
	FOREIGN KEY(project_id) REFERENCES projects (id) ON DELETE CASCADE,
	UNIQUE (code)
);
CREATE INDEX share_links_of_project ON share_links (project_id);
CREATE TABLE stored_cells (
	key VARCHAR(32) NOT NULL,
	cell INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	token VARCHAR(32),
	leased_until BIGINT NOT NULL,
	part_number INTEGER,
	length BIGINT,
	etag VARCHAR(200),
	crc32c VARCHAR(8),
	through BIGINT,
	PRIMARY KEY (key, cell),
	FOREIGN KEY(key) REFERENCES stored_files (key)
);
CREATE TABLE stored_pieces (
	id BIGSERIAL NOT NULL,
	key VARCHAR(32) NOT NULL,
	cell INTEGER NOT NULL,
	start BIGINT NOT NULL,
	"end" BIGINT NOT NULL,
	name VARCHAR(200) NOT NULL,
	etag VARCHAR(200),
	crc32c VARCHAR(8),
	leased_until BIGINT NOT NULL,
	PRIMARY KEY (id),
	FOREIGN KEY(key) REFERENCES stored_files (key)
);
CREATE INDEX stored_pieces_intended ON stored_pieces (leased_until) WHERE etag IS NULL;
CREATE INDEX stored_pieces_of_cell ON stored_pieces (key, cell, id);
CREATE TABLE upload_links (
	id VARCHAR(32) NOT NULL,
	project_id VARCHAR(32) NOT NULL,
	code VARCHAR(64) NOT NULL,
	name TEXT NOT NULL,
	message TEXT NOT NULL,
	max_files INTEGER,
	max_bytes BIGINT,
	max_file_bytes BIGINT,
	extensions TEXT NOT NULL,
	asks_name BOOLEAN NOT NULL,
	password_hash TEXT,
	files INTEGER NOT NULL,
	bytes BIGINT NOT NULL,
	created_by TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT,
	closed_at BIGINT,
	PRIMARY KEY (id),
	FOREIGN KEY(project_id) REFERENCES projects (id) ON DELETE CASCADE,
	UNIQUE (code)
);
CREATE INDEX upload_links_of_project ON upload_links (project_id);
CREATE TABLE webhooks (
	id VARCHAR(32) NOT NULL,
	project_id VARCHAR(32) NOT NULL,
	url TEXT NOT NULL,
	secret TEXT NOT NULL,
	events TEXT NOT NULL,
	created_by TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	paused_at BIGINT,
	old_secret TEXT,
	old_secret_until BIGINT,
	PRIMARY KEY (id),
	FOREIGN KEY(project_id) REFERENCES projects (id) ON DELETE CASCADE
);
CREATE INDEX webhooks_of_project ON webhooks (project_id);
CREATE TABLE link_senders (
	link_id VARCHAR(32) NOT NULL,
	visitor VARCHAR(32) NOT NULL,
	name TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (link_id, visitor),
	FOREIGN KEY(link_id) REFERENCES upload_links (id) ON DELETE CASCADE
);
CREATE TABLE shared_videos (
	link_id VARCHAR(32) NOT NULL,
	upload_id VARCHAR(32) NOT NULL,
	position INTEGER NOT NULL,
	PRIMARY KEY (link_id, upload_id),
	FOREIGN KEY(link_id) REFERENCES share_links (id) ON DELETE CASCADE,
	FOREIGN KEY(upload_id) REFERENCES uploads (id) ON DELETE CASCADE
);
CREATE INDEX shared_videos_of_upload ON shared_videos (upload_id);
CREATE TABLE webhook_deliveries (
	id VARCHAR(32) NOT NULL,
	webhook_id VARCHAR(32) NOT NULL,
	event_number INTEGER NOT NULL,
	subject VARCHAR(32) NOT NULL,
	state VARCHAR(16) NOT NULL,
	token VARCHAR(32),
	attempts INTEGER NOT NULL,
	status INTEGER,
	problem TEXT,
	created_at BIGINT NOT NULL,
	due_at BIGINT NOT NULL,
	delivered_at BIGINT,
	PRIMARY KEY (id),
	FOREIGN KEY(webhook_id) REFERENCES webhooks (id) ON DELETE CASCADE,
	FOREIGN KEY(event_number) REFERENCES webhook_events (number) ON DELETE CASCADE
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook_id, state, due_at, event_number);
CREATE INDEX webhook_deliveries_in_order ON webhook_deliveries (webhook_id, subject, event_number);
CREATE INDEX webhook_deliveries_of_event ON webhook_deliveries (event_number);
CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (webhook_id, event_number);
INSERT INTO projects VALUES('local','Videos',1795887536000000,0,NULL,NULL);
