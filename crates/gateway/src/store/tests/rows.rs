//! What every store of rows must do: in memory, in SQLite and in PostgreSQL.
use super::*;
use serde_json::json;
use weir_plugin::{Background, MemoryRows, Row, RowKey, RowStore, unix_time};

const KIND: &str = "tokens";

/// The rows of a node, and of another one of the same database.
struct Nodes {
    one: Arc<dyn RowStore>,
    other: Arc<dyn RowStore>,
    place: Option<Place>,
}

impl Nodes {
    fn in_memory() -> Nodes {
        let rows: Arc<dyn RowStore> = Arc::new(MemoryRows::default());
        Nodes { one: rows.clone(), other: rows, place: None }
    }

    async fn of(place: Place) -> Nodes {
        // It migrates SQLite.
        drop(place.open().await);
        let rows = || rows(&place.settings, Arc::new(Background::default())).unwrap().unwrap();
        let (one, other) = (rows(), rows());
        Nodes { one, other, place: Some(place) }
    }
}

macro_rules! in_all {
    ($($test:ident),* $(,)?) => {
        mod in_memory { $(
            #[tokio::test]
            async fn $test() {
                super::$test(super::Nodes::in_memory()).await;
            }
        )* }

        mod in_sqlite { $(
            #[tokio::test]
            async fn $test() {
                super::$test(super::Nodes::of(super::Place::in_sqlite().bootstrapped().await).await).await;
            }
        )* }

        mod in_postgres { $(
            #[tokio::test]
            async fn $test() {
                super::$test(super::Nodes::of(super::Place::in_postgres().bootstrapped().await).await).await;
            }
        )* }
    };
}

in_all![
    a_row_is_found_by_its_keys_until_it_is_deleted,
    keys_are_unique_within_a_kind,
    expired_rows_are_not_there_and_in_nobodys_way,
    pages_follow_one_another,
    of_many_that_delete_a_row_one_gets_it,
    the_configuration_does_not_notice,
];

fn row(number: u128) -> Row {
    let key = |name: &str| Some(format!("{name}-{number}"));
    let body = json!({ "text": "\u{0}é\"", "number": 7 });
    Row { id: Uuid::from_u128(number), first: key("first"), second: key("second"), body, expires: None }
}

async fn a_row_is_found_by_its_keys_until_it_is_deleted(nodes: Nodes) {
    let Nodes { one, other, .. } = &nodes;
    let stored = Row { expires: Some(unix_time() + 1000), ..row(1) };
    assert!(one.insert(KIND, stored.clone()).await.unwrap());
    let keys =
        [RowKey::Id(stored.id), RowKey::First("first-1".to_owned()), RowKey::Second("second-1".to_owned())];
    for key in &keys {
        assert_eq!(other.find(KIND, key.clone()).await.unwrap(), Some(stored.clone()), "{key:?}");
        assert_eq!(other.find("codes", key.clone()).await.unwrap(), None);
    }
    for unknown in ["first-2", "second-1", "", "first-1\u{0}"] {
        assert_eq!(one.find(KIND, RowKey::First(unknown.to_owned())).await.unwrap(), None, "{unknown:?}");
    }
    let changed = Row { second: None, body: json!([]), ..stored };
    assert!(other.update(KIND, changed.clone()).await.unwrap());
    assert_eq!(one.find(KIND, keys[0].clone()).await.unwrap(), Some(changed));
    assert_eq!(one.find(KIND, keys[2].clone()).await.unwrap(), None);
    assert!(one.delete(KIND, Uuid::from_u128(1)).await.unwrap());
    assert!(!other.delete(KIND, Uuid::from_u128(1)).await.unwrap());
    assert!(!other.update(KIND, row(1)).await.unwrap());
    assert_eq!(other.find(KIND, keys[1].clone()).await.unwrap(), None);
}

async fn keys_are_unique_within_a_kind(nodes: Nodes) {
    let rows = &nodes.one;
    assert!(rows.insert(KIND, row(1)).await.unwrap());
    for taken in [
        Row { id: Uuid::from_u128(1), ..row(2) },
        Row { first: row(1).first, ..row(2) },
        Row { second: row(1).second, ..row(2) },
    ] {
        assert!(!rows.insert(KIND, taken).await.unwrap());
    }
    assert!(rows.insert("codes", row(1)).await.unwrap());
    for number in [2, 3] {
        let without = Row { first: None, second: None, ..row(number) };
        assert!(rows.insert(KIND, without).await.unwrap(), "what is not there is not the same");
    }
    let taken = Row { first: row(1).first, ..row(2) };
    assert!(!rows.update(KIND, taken).await.unwrap());
    assert!(rows.update(KIND, row(2)).await.unwrap());
    assert!(rows.update(KIND, row(1)).await.unwrap(), "its own keys are not in its way");
}

async fn expired_rows_are_not_there_and_in_nobodys_way(nodes: Nodes) {
    let rows = &nodes.one;
    let expired = Row { expires: Some(unix_time() - 1), ..row(1) };
    assert!(rows.insert(KIND, expired).await.unwrap());
    assert_eq!(rows.find(KIND, RowKey::Id(Uuid::from_u128(1))).await.unwrap(), None);
    assert_eq!(rows.find(KIND, RowKey::First("first-1".to_owned())).await.unwrap(), None);
    assert_eq!(rows.page(KIND, None, 10).await.unwrap(), []);
    let next = Row { id: Uuid::from_u128(2), ..row(1) };
    assert!(rows.insert(KIND, next.clone()).await.unwrap());
    assert_eq!(rows.page(KIND, None, 10).await.unwrap(), [next]);
}

async fn pages_follow_one_another(nodes: Nodes) {
    let rows = &nodes.one;
    for number in [3, 1, 2] {
        assert!(rows.insert(KIND, row(number)).await.unwrap());
    }
    assert_eq!(rows.page(KIND, None, 2).await.unwrap(), [row(1), row(2)]);
    assert_eq!(rows.page(KIND, Some(Uuid::from_u128(2)), 2).await.unwrap(), [row(3)]);
    assert_eq!(rows.page(KIND, Some(Uuid::from_u128(3)), 2).await.unwrap(), []);
}

async fn of_many_that_delete_a_row_one_gets_it(nodes: Nodes) {
    assert!(nodes.one.insert(KIND, row(1)).await.unwrap());
    let tasks: Vec<_> = (0..8)
        .map(|number| {
            let rows = if number % 2 == 0 { &nodes.one } else { &nodes.other };
            tokio::spawn(rows.delete(KIND, Uuid::from_u128(1)))
        })
        .collect();
    let mut deleted = 0;
    for task in tasks {
        deleted += usize::from(task.await.unwrap().unwrap());
    }
    assert_eq!(deleted, 1);
}

async fn the_configuration_does_not_notice(nodes: Nodes) {
    assert!(nodes.one.insert(KIND, row(1)).await.unwrap());
    if let Some(place) = &nodes.place {
        assert_eq!(kept(&*place.open().await).await, (Revision(0), Vec::new()));
    }
}

#[tokio::test]
async fn a_server_that_went_away_comes_back() {
    let mut server = server::PostgresServer::start();
    let nodes = Nodes::of(Place::on(server.port).bootstrapped().await).await;
    assert!(nodes.one.insert(KIND, row(1)).await.unwrap());
    server.stop();
    assert!(nodes.one.find(KIND, RowKey::Id(row(1).id)).await.is_err());
    server.restart();
    assert_eq!(nodes.one.find(KIND, RowKey::Id(row(1).id)).await.unwrap(), Some(row(1)));
}
