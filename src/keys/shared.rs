//! Keys as nodes of a cluster share them: which changes other nodes do not know yet, and how two nodes' accounts of a key
//! become one.
//!
//! Nodes tell each other rows as [`Columns`] by name, whatever columns there are: those that one does not know stay, so that an
//! older node takes nothing away from a newer one. Triggers list each changed row in `changes`, in the transaction of
//! the change, until [`Store::settle`].
//!
//! Of two accounts the later one counts, column by column, with two exceptions that make a revocation final: the earlier
//! `revoked_unix_ms` stays, and a key that was forgotten (only revoked ones are) stays forgotten.

use std::collections::{BTreeMap, HashSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rusqlite::types::{Value as Cell, ValueRef};
use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params_from_iter};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Error;
use super::secret::KeyId;
use super::store::Store;

const REVOKED: &str = "revoked_unix_ms";
const FORGOTTEN: &str = "forgotten";
const BYTES: &str = "base64";

/// The row of a key or of an organisation, as nodes tell each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns(BTreeMap<String, Value>);

impl Columns {
    /// None if these are none.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    pub fn to_bytes(&self) -> Vec<u8> {
        // Names are strings, and numbers of SQLite that are read here finite.
        serde_json::to_vec(self).unwrap_or_default()
    }

    fn forgotten() -> Self {
        Self([(FORGOTTEN.to_owned(), Value::Bool(true))].into())
    }

    fn is_forgotten(&self) -> bool {
        self.0.get(FORGOTTEN) == Some(&Value::Bool(true))
    }

    fn revoked(&self) -> Option<i64> {
        self.0.get(REVOKED)?.as_i64()
    }

    /// What is known once a node that knows `self` hears `later`.
    fn and(&self, later: &Self) -> Self {
        if self.is_forgotten() || later.is_forgotten() {
            return Self::forgotten();
        }
        let mut columns = self.0.clone();
        columns.extend(later.0.clone());
        if let Some(first) = self.revoked().into_iter().chain(later.revoked()).min() {
            columns.insert(REVOKED.to_owned(), first.into());
        }
        Self(columns)
    }
}

/// A change of this node that the others may not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Untold {
    /// Another number means another change.
    pub number: i64,
    /// `key.ID` or `organisation.TENANT`.
    pub name: String,
    /// Nothing has changed here: the others may lack this.
    pub is_copy: bool,
}

/// The row that a name stands for.
struct Place {
    table: &'static str,
    column: &'static str,
    id: Cell,
}

impl Place {
    /// None for names that are neither a key's nor an organisation's.
    fn of(name: &str) -> Option<Self> {
        let (kind, id) = name.split_once('.')?;
        match kind {
            "key" => {
                let id = KeyId::parse(id).filter(|known| known.as_str() == id)?;
                Some(Self { table: "keys", column: "id", id: Cell::Text(id.as_str().to_owned()) })
            }
            "organisation" => {
                let tenant = id.parse().ok()?;
                Some(Self { table: "organisations", column: "tenant", id: Cell::Integer(tenant) })
            }
            _ => None,
        }
    }

    fn read(&self, connection: &Connection) -> Result<Option<Columns>, Error> {
        let Self { table, column, id } = self;
        let mut statement = connection.prepare(&format!("SELECT * FROM {table} WHERE {column} = ?1"))?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let row = statement.query_row([id], |row| {
            let cells = names.iter().enumerate();
            cells.map(|(at, name)| Ok((name.clone(), shown(row.get_ref(at)?)))).collect::<Result<_, _>>()
        });
        Ok(row.optional()?.map(Columns))
    }

    /// Writes the columns of `entry` that the table has.
    fn write(&self, connection: &Connection, entry: &Columns) -> Result<(), Error> {
        let Self { table, column, id } = self;
        let statement = connection.prepare(&format!("SELECT * FROM {table} LIMIT 0"))?;
        let known = statement.column_names();
        let (mut names, mut cells) = (vec![*column], vec![id.clone()]);
        for name in known.into_iter().filter(|name| name != column) {
            if let Some(value) = entry.0.get(name) {
                names.push(name);
                cells.push(cell(value).ok_or(Error::Foreign)?);
            }
        }
        let places = (1..=names.len()).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ");
        let changes = names.iter().map(|name| format!("{name} = excluded.{name}"));
        let query = format!(
            "INSERT INTO {table} ({}) VALUES ({places}) ON CONFLICT ({column}) DO UPDATE SET {}",
            names.join(", "),
            changes.collect::<Vec<_>>().join(", "),
        );
        match connection.execute(&query, params_from_iter(cells)) {
            Ok(_) => Ok(()),
            Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation) => {
                Err(Error::Foreign)
            }
            Err(error) => Err(error.into()),
        }
    }

    fn forget(&self, connection: &Connection) -> Result<(), Error> {
        let Self { table, column, id } = self;
        connection.execute(&format!("DELETE FROM {table} WHERE {column} = ?1"), [id])?;
        Ok(())
    }
}

fn shown(cell: ValueRef<'_>) -> Value {
    match cell {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Real(number) => number.into(),
        ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
        ValueRef::Blob(bytes) => json!({ BYTES: STANDARD.encode(bytes) }),
    }
}

fn cell(value: &Value) -> Option<Cell> {
    match value {
        Value::Null => Some(Cell::Null),
        Value::String(text) => Some(Cell::Text(text.clone())),
        Value::Number(number) => number.as_i64().map(Cell::Integer).or(number.as_f64().map(Cell::Real)),
        Value::Object(map) => Some(Cell::Blob(STANDARD.decode(map.get(BYTES)?.as_str()?).ok()?)),
        Value::Bool(_) | Value::Array(_) => None,
    }
}

impl Store {
    /// Changes that other nodes may not know, the oldest first.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn changes(&self, most: usize) -> Result<Vec<Untold>, Error> {
        let mut statement = self
            .connection
            .prepare_cached("SELECT number, name, is_copy FROM changes ORDER BY number LIMIT ?1")?;
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Untold { number: row.get(0)?, name: row.get(1)?, is_copy: row.get(2)? })
        };
        let changes = statement.query_map([most as i64], read)?.collect::<Result<_, _>>()?;
        Ok(changes)
    }

    /// The others know a change: it is taken off the list, unless there is a later one of the same row.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn settle(&self, change: &Untold) -> Result<(), Error> {
        self.connection.execute("DELETE FROM changes WHERE number = ?1", [change.number])?;
        Ok(())
    }

    /// Lists all that is not `known` to the others, once.
    ///
    /// # Returns
    /// The number of entries listed anew.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub fn offer_all_but(&self, known: &HashSet<String>) -> Result<usize, Error> {
        let change = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let names: Vec<String> = {
            let mut all = change.prepare(
                "SELECT 'key.' || id FROM keys UNION ALL SELECT 'organisation.' || tenant FROM organisations",
            )?;
            let names = all.query_map([], |row| row.get(0))?;
            names.collect::<Result<_, _>>()?
        };
        let mut listed = 0;
        for name in names.into_iter().filter(|name| !known.contains(name)) {
            listed +=
                change.execute("INSERT OR IGNORE INTO changes (name, is_copy) VALUES (?1, 1)", [name])?;
        }
        change.commit()?;
        Ok(listed)
    }

    /// Brings the row `name` together with the others' account of it, which is `None` if they have none.
    ///
    /// # Returns
    /// What the others are to be told; `None` if they know it all.
    ///
    /// # Errors
    /// [`Error::Foreign`] if theirs cannot be kept; [`Error::Database`].
    pub fn reconcile(
        &self,
        name: &str,
        theirs: Option<&Columns>,
    ) -> Result<Option<(Untold, Columns)>, Error> {
        let place = Place::of(name).ok_or(Error::Foreign)?;
        let change = Transaction::new_unchecked(&self.connection, TransactionBehavior::Immediate)?;
        let listed = listed(&change, name)?;
        let ours = match (place.read(&change)?, &listed) {
            (Some(row), _) => Some(row),
            (None, Some(_)) => Some(Columns::forgotten()),
            (None, None) => None,
        };
        let whole = match (&ours, theirs) {
            (Some(ours), Some(theirs)) if listed.as_ref().is_some_and(|change| !change.is_copy) => {
                theirs.and(ours)
            }
            (Some(ours), Some(theirs)) => ours.and(theirs),
            (Some(one), None) => one.clone(),
            (None, Some(one)) => one.clone(),
            (None, None) => return Ok(None),
        };
        if whole.is_forgotten() {
            place.forget(&change)?;
        } else if ours.as_ref() != Some(&whole) {
            place.write(&change, &whole)?;
        }
        // The triggers have listed what was written just now.
        let news = if theirs == Some(&whole) {
            change.execute("DELETE FROM changes WHERE name = ?1", [name])?;
            None
        } else {
            change.execute("INSERT OR IGNORE INTO changes (name) VALUES (?1)", [name])?;
            self::listed(&change, name)?
        };
        change.commit()?;
        Ok(news.map(|news| (news, whole)))
    }
}

fn listed(connection: &Connection, name: &str) -> Result<Option<Untold>, Error> {
    let found = connection.query_row("SELECT number, is_copy FROM changes WHERE name = ?1", [name], |row| {
        Ok(Untold { number: row.get(0)?, name: name.to_owned(), is_copy: row.get(1)? })
    });
    Ok(found.optional()?)
}

#[cfg(test)]
mod tests;
