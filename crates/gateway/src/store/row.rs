//! Entities as rows.
use super::migrations::{Found, Versions};
use super::{Loaded, Revision, Since, StoreError};
use std::collections::HashMap;
use weir_model::entity::Entity;
use weir_model::schema::FieldError;
use weir_model::{Change, PluginSchema, ReadOptions, Uuid, find_kind};

/// The columns selected from both tables, in both databases: `version`, `migrated_to`, `revision` and `oldest` of
/// `weir_meta`, then `kind`, `id` and `body` of an entity, null without any entity.
pub(super) type Selected = (i64, i64, i64, i64, Option<String>, Option<String>, Option<String>);

/// `weir_meta`, whatever its version. In tables that lack `migrated_to`, its name means that of the query around it, which
/// is `version`.
macro_rules! meta {
    () => {
        "(SELECT version, (SELECT migrated_to FROM weir_meta) AS migrated_to, revision, oldest \
          FROM (SELECT version, version AS migrated_to, revision, oldest FROM weir_meta) AS around) AS m"
    };
}

/// The versions of the tables: [`Versions`].
pub(super) const VERSIONS: &str = concat!("SELECT m.version, m.migrated_to FROM ", meta!());

/// The versions of the tables, and the newest revision.
pub(super) const NEWEST: &str = concat!("SELECT m.version, m.migrated_to, m.revision FROM ", meta!());

/// Every entity. One statement, so that all of it is of one moment.
pub(super) const ALL: &str = concat!(
    "SELECT m.version, m.migrated_to, m.revision, m.oldest, e.kind, e.id, e.body FROM ",
    meta!(),
    " LEFT JOIN weir_entities e ON e.body IS NOT NULL"
);

/// Every entity that was written after revision `$1`, and the tombstones of deleted ones.
pub(super) const AFTER: &str = concat!(
    "SELECT m.version, m.migrated_to, m.revision, m.oldest, e.kind, e.id, e.body FROM ",
    meta!(),
    " LEFT JOIN weir_entities e ON e.revision > $1 ORDER BY e.revision"
);

/// The history that revisions count in.
pub(super) const EPOCH: &str = "SELECT epoch FROM weir_meta";

/// For how many revisions tombstones are kept.
pub(super) const TOMBSTONE_REVISIONS: u64 = 10_000;

/// An entity to be written.
pub(super) struct Row {
    pub(super) kind: &'static str,
    pub(super) id: String,
    /// None once it is deleted.
    pub(super) body: Option<String>,
}

/// The rows that changes write, one for each entity.
pub(super) fn rows(changes: &[Change]) -> Vec<Row> {
    let last: HashMap<_, _> =
        changes.iter().enumerate().map(|(at, change)| ((change.kind, change.id), at)).collect();
    let is_last = |(at, change): &(usize, &Change)| last.get(&(change.kind, change.id)) == Some(at);
    let row = |(_, change): (usize, &Change)| Row {
        kind: change.kind.as_str(),
        id: change.id.to_string(),
        body: change.entity.as_ref().map(|entity| entity.to_value().to_string()),
    };
    changes.iter().enumerate().filter(is_last).map(row).collect()
}

/// The entities selected by [`ALL`].
pub(super) fn loaded(
    selected: Vec<Selected>,
    plugins: &[PluginSchema],
    place: &str,
) -> Result<Loaded, StoreError> {
    let (revision, _) = meta(&selected, place)?;
    let mut entities = Vec::with_capacity(selected.len());
    for (.., kind, id, body) in selected {
        let (Some(kind), Some(id)) = (kind, id) else { continue };
        let change = change(&kind, &id, body.as_deref(), plugins, place)?;
        entities.extend(change.and_then(|change| change.entity));
    }
    Ok(Loaded { revision, entities })
}

/// The changes selected by [`AFTER`] this revision.
pub(super) fn since(
    after: Revision,
    selected: Vec<Selected>,
    plugins: &[PluginSchema],
    place: &str,
) -> Result<Since, StoreError> {
    let (revision, oldest) = meta(&selected, place)?;
    // A revision in the future is one of another history: the database was created again.
    if after < oldest || after > revision {
        return Ok(Since::Lost);
    }
    let mut changes = Vec::with_capacity(selected.len());
    for (.., kind, id, body) in selected {
        let (Some(kind), Some(id)) = (kind, id) else { continue };
        changes.extend(change(&kind, &id, body.as_deref(), plugins, place)?);
    }
    Ok(Since::Changes { revision, changes })
}

/// The newest revision, and the oldest one with a complete list of changes. Tables that this program cannot use are refused.
fn meta(selected: &[Selected], place: &str) -> Result<(Revision, Revision), StoreError> {
    let Some((usable_from, migrated_to, revision, oldest, ..)) = selected.first() else {
        let message = format!("{place}: weir_meta is empty: restore it from a backup");
        return Err(StoreError::Broken(message));
    };
    let versions = Versions { usable_from: *usable_from, migrated_to: *migrated_to };
    Found::of(Some(versions), place)?.usable(place)?;
    Ok((Revision(revision.cast_unsigned()), Revision(oldest.cast_unsigned())))
}

/// The change that a row is; none where an entity was deleted of a kind that this program does not know, because it does
/// not have the entity.
fn change(
    kind: &str,
    id: &str,
    body: Option<&str>,
    plugins: &[PluginSchema],
    place: &str,
) -> Result<Option<Change>, StoreError> {
    let broken = |why: &str| unusable(kind, id, why, place);
    let (known, body) = match (find_kind(plugins, kind), body) {
        (Some(known), Some(body)) => (known, body),
        (Some(known), None) => {
            let id = Uuid::try_parse(id).map_err(|_| broken("its id is no UUID"))?;
            return Ok(Some(Change::delete(known, id)));
        }
        (None, None) => return Ok(None),
        (None, Some(_)) => return Err(broken("this version knows no such kind of entity")),
    };
    // The parser's message may quote a secret. The parser stops at values that are nested too deep.
    let body = serde_json::from_str(body)
        .map_err(|_| broken("it is not JSON, or nested deeper than can be read"))?;
    let reading = ReadOptions { plugins, references: &(), hash_passwords: false };
    let entity = Entity::read(known, &body, &[], reading).map_err(|wrong| broken(&listed(&wrong)))?;
    Ok(Some(Change::put(entity)))
}

/// An entity that cannot be read is an error, because a route without its plugin might be open to all. The message
/// holds the statement that removes it, because no node starts until then.
fn unusable(kind: &str, id: &str, why: &str, place: &str) -> StoreError {
    let literal = |text: &str| text.replace('\'', "''");
    let (kind_literal, id_literal) = (literal(kind), literal(id));
    StoreError::Broken(format!(
        "{place}: {kind} {id} cannot be used: {why}; fix that, or change it with the version of weir that wrote it, or \
         remove it with: DELETE FROM weir_entities WHERE kind = '{kind_literal}' AND id = '{id_literal}';"
    ))
}

fn listed(violations: &[FieldError]) -> String {
    let each = |FieldError { path, message }: &FieldError| match path.as_str() {
        "" => message.clone(),
        path => format!("{path}: {message}"),
    };
    violations.iter().map(each).collect::<Vec<_>>().join("; ")
}
