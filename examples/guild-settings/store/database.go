package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "github.com/lib/pq"  // the driver "postgres"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// A database keeps the settings of guilds, in SQLite or PostgreSQL: both take the
// same statements.
type database struct {
	*sql.DB
	temporary string // the directory of a database that nobody named
}

// openDatabase opens the database at a postgres:// URL, or in the SQLite file at
// a path. An empty place is a file that goes when the database is closed.
func openDatabase(ctx context.Context, place string) (_ *database, err error) {
	d := new(database)
	driver, source := "postgres", place
	if !strings.HasPrefix(place, "postgres://") && !strings.HasPrefix(place, "postgresql://") {
		if place == "" {
			if d.temporary, err = os.MkdirTemp("", "guild-settings-"); err != nil {
				return nil, err
			}
			place = filepath.Join(d.temporary, "settings.db")
		}
		driver, source = "sqlite", "file:"+place+"?_pragma=busy_timeout(5000)"
	}
	if d.DB, err = sql.Open(driver, source); err != nil {
		return nil, errors.Join(err, d.remove())
	}
	_, err = d.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS guild_settings (
		guild         TEXT PRIMARY KEY,
		settings      TEXT NOT NULL,
		fencing_token BIGINT NOT NULL
	)`)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the database cannot be used: %w", err), d.Close())
	}
	return d, nil
}

// Close closes the database, and removes it if nobody named it.
func (d *database) Close() error { return errors.Join(d.DB.Close(), d.remove()) }

func (d *database) remove() error {
	if d.temporary == "" {
		return nil
	}
	return os.RemoveAll(d.temporary)
}

// errStale says that a write came too late: somebody with a newer fence has
// written.
var errStale = errors.New("a newer fence has been seen")

// write stores the settings of a guild if the fence is newer than that of every
// write before. One statement compares and writes, so that no other write comes
// in between. The same write again, after its answer got lost, is accepted and
// changes nothing.
func (d *database) write(ctx context.Context, guild string, fence int64, settings string) error {
	_, err := d.ExecContext(ctx, `INSERT INTO guild_settings (guild, settings, fencing_token) VALUES ($1, '{}', 0) ON CONFLICT (guild) DO NOTHING`, guild)
	if err != nil {
		return err
	}
	result, err := d.ExecContext(ctx, `UPDATE guild_settings SET settings = $3, fencing_token = $2 WHERE guild = $1 AND fencing_token < $2`, guild, fence, settings)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n == 1 {
		return err
	}
	stored, newest, err := d.read(ctx, guild)
	if err == nil && (newest != fence || stored != settings) {
		err = fmt.Errorf("fence %d: %w: %d", fence, errStale, newest)
	}
	return err
}

// read returns the settings of a guild, empty ones if it has none, and the fence
// they were written under.
func (d *database) read(ctx context.Context, guild string) (settings string, fence int64, err error) {
	err = d.QueryRowContext(ctx, `SELECT settings, fencing_token FROM guild_settings WHERE guild = $1`, guild).Scan(&settings, &fence)
	if errors.Is(err, sql.ErrNoRows) {
		return "{}", 0, nil
	}
	return settings, fence, err
}
