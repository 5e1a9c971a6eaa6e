use super::*;

const LONG: Option<Duration> = Some(Duration::from_secs(60));
const GONE: Option<Duration> = Some(Duration::ZERO);

fn text(dict: &SharedDict, key: &str) -> Option<String> {
    let value = dict.get(key)?;
    value.as_bytes().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn sorted_keys(dict: &SharedDict) -> Vec<String> {
    let keys = dict.keys(usize::MAX);
    let mut keys: Vec<_> = keys.iter().map(|key| String::from_utf8_lossy(key).into_owned()).collect();
    keys.sort();
    keys
}

/// A dictionary with room for so many entries of a short key and `bytes` of value.
fn room_for(entries: usize, bytes: usize) -> SharedDict {
    let one = SharedDict::new(1 << 20);
    one.set("key 0", vec![0; bytes], None).unwrap();
    SharedDict::new(entries * (one.capacity() - one.free_space()))
}

#[test]
fn values_are_there_until_they_expire_or_are_deleted() {
    let dict = SharedDict::new(1 << 20);
    dict.set("a", "one", LONG).unwrap();
    assert_eq!(text(&dict, "a").as_deref(), Some("one"));
    assert!(dict.ttl("a").unwrap().unwrap() > Duration::from_secs(50));
    assert!(dict.expire("a", None));
    assert_eq!(dict.ttl("a"), Some(None));
    dict.set("b", "two", GONE).unwrap();
    assert_eq!((dict.get("b"), dict.ttl("b"), dict.expire("b", None)), (None, None, false));
    assert_eq!((dict.delete("a"), dict.delete("a"), dict.delete("b")), (true, false, false));
    assert_eq!(dict.free_space(), dict.capacity(), "removed entries take no bytes");
}

#[test]
fn a_value_that_has_expired_is_found_as_stale_until_it_is_removed() {
    let dict = SharedDict::new(1 << 20);
    dict.set("b", true, LONG).unwrap();
    // A new entry may remove those beside it that have expired, so all expire after the last is set.
    for key in ["gone 1", "gone 2", "gone 3"] {
        dict.set(key, "", LONG).unwrap();
    }
    dict.write("a", 7.0, WriteOptions { ttl: GONE, flags: 3, ..WriteOptions::default() }).unwrap();
    assert_eq!(dict.find("a"), Ok(Some(DictEntry { value: 7.0.into(), flags: 3, is_stale: true })));
    assert_eq!((dict.flush_expired(10), dict.flush_expired(10)), (1, 0));
    assert_eq!(dict.find("a"), Ok(None));
    for key in ["gone 1", "gone 2", "gone 3"] {
        assert!(dict.expire(key, GONE));
    }
    assert_eq!(sorted_keys(&dict), ["b"]);
    assert_eq!((dict.flush_expired(2), dict.flush_expired(2)), (2, 1));
}

#[test]
fn keys_are_added_replaced_and_counted() {
    let dict = SharedDict::new(1 << 20);
    assert_eq!(dict.replace("a", "one", None), Err(DictError::NotFound));
    dict.add("a", "one", GONE).unwrap();
    dict.add("a", "one", None).unwrap();
    assert_eq!(dict.add("a", "two", None), Err(DictError::Exists));
    dict.replace("a", "two", None).unwrap();
    assert_eq!(text(&dict, "a").as_deref(), Some("two"));
    assert_eq!(dict.incr("a", 1.0, None), Err(DictError::NotANumber));
    assert_eq!(dict.incr("n", 1.0, None), Err(DictError::NotFound));
    assert_eq!(dict.incr("n", 1.0, Some((10.0, LONG))), Ok(11.0));
    assert_eq!(dict.incr("n", 2.5, Some((0.0, None))), Ok(13.5));
    assert!(dict.ttl("n").unwrap().is_some(), "incrementing does not change when it expires");
    dict.set("m", 1.0, None).unwrap();
    assert_eq!((dict.incr("m", 1.0, None), dict.get("n")), (Ok(2.0), Some(13.5.into())));
    assert_eq!(sorted_keys(&dict), ["a", "m", "n"]);
    assert_eq!(dict.keys(1).len(), 1);
    dict.flush_all();
    assert_eq!((dict.keys(10).len(), dict.free_space()), (0, dict.capacity()));
}

#[test]
fn what_is_used_stays_and_what_is_not_makes_room() {
    let dict = room_for(4, 100);
    for key in ["key 1", "key 2", "key 3"] {
        assert_eq!(dict.set(key, vec![0; 100], None), Ok(WriteOutcome { evicted: false }));
    }
    dict.incr("count", 1.0, Some((0.0, None))).unwrap();
    assert!(dict.get("key 1").is_some());
    dict.incr("count", 1.0, None).unwrap();
    assert_eq!(dict.set("key 4", vec![0; 100], None), Ok(WriteOutcome { evicted: true }));
    assert_eq!(sorted_keys(&dict), ["count", "key 1", "key 3", "key 4"]);
    assert_eq!(dict.safe_set("key 5", vec![0; 100], None), Err(DictError::NoMemory));
    dict.expire("key 3", GONE);
    assert_eq!(dict.flush_expired(10), 1);
    assert_eq!(dict.safe_set("key 5", vec![0; 100], None), Ok(WriteOutcome { evicted: false }));
}

#[test]
fn a_value_may_take_the_whole_dictionary_and_no_more() {
    let dict = room_for(1, 10_000);
    for n in 0..100 {
        dict.set(format!("small {n}"), "", None).unwrap();
    }
    dict.set("key 1", vec![0; 10_000], None).unwrap();
    assert_eq!((sorted_keys(&dict), dict.free_space()), (vec!["key 1".to_owned()], 0));
    dict.set("key 1", vec![1; 10_000], None).unwrap();
    assert_eq!(dict.set("key 1", vec![2; 10_001], None), Err(DictError::NoMemory));
    assert_eq!(dict.get("key 1"), Some(vec![1; 10_000].into()), "what is refused changes nothing");
    dict.set("key 1", "short", None).unwrap();
    assert!(dict.free_space() > 9_000);
}

#[test]
fn the_size_is_kept_whatever_the_keys() {
    let dict = SharedDict::new(64 * 1024);
    for n in 0..10_000 {
        let key = format!("{n}{}", "k".repeat(n % 500));
        dict.set(&key, vec![0; n % 100], if n % 3 == 0 { GONE } else { None }).unwrap();
        match n % 7 {
            0 => drop(dict.delete(&key)),
            1 => drop(dict.rpush(format!("list {}", n % 5), vec![0; n % 90])),
            2 => drop(dict.lpop(format!("list {}", n % 5))),
            _ => {}
        }
    }
    assert!(dict.free_space() < dict.capacity() / 2, "{}", dict.free_space());
    while dict.evict_oldest(true).is_some() {}
    assert_eq!((dict.free_space(), dict.keys(10).len()), (dict.capacity(), 0), "every byte is given back");
}

#[test]
fn lists_are_queues() {
    let dict = SharedDict::new(10_000);
    assert_eq!((dict.llen("q"), dict.lpop("q")), (Ok(0), Ok(None)));
    assert_eq!((dict.rpush("q", "b"), dict.rpush("q", 3.0), dict.lpush("q", "a")), (Ok(1), Ok(2), Ok(3)));
    assert_eq!((dict.get("q"), dict.find("q")), (None, Err(DictError::IsAList)));
    assert_eq!(dict.incr("q", 1.0, None), Err(DictError::NotANumber));
    assert_eq!((dict.lpop("q"), dict.rpop("q")), (Ok(Some("a".into())), Ok(Some(3.0.into()))));
    assert_eq!((dict.llen("q"), dict.lpop("q"), dict.keys(10).len()), (Ok(1), Ok(Some("b".into())), 0));
    dict.set("text", "", None).unwrap();
    assert_eq!(dict.rpush("text", "a"), Err(DictError::NotAList));
    assert_eq!((dict.rpop("text"), dict.llen("text")), (Err(DictError::NotAList), Err(DictError::NotAList)));
    let pushed = (0..1_000).take_while(|_| dict.rpush("q", vec![0; 100]).is_ok()).count();
    assert_eq!(dict.rpush("q", vec![0; 100]), Err(DictError::NoMemory));
    assert_eq!((dict.llen("q"), dict.get("text").is_some()), (Ok(pushed), true), "a list evicts nothing");
    dict.set("q", "a value again", None).unwrap();
    assert_eq!(text(&dict, "q").as_deref(), Some("a value again"));
}

#[test]
fn a_name_stands_for_one_dictionary_and_a_smaller_size_takes_effect() {
    let dicts = SharedDicts::default();
    for n in 0..100 {
        dicts.get("a", 1 << 20).set(format!("key {n}"), vec![0; 1_000], None).unwrap();
    }
    assert_eq!(dicts.get("a", 1 << 20).keys(1_000).len(), 100);
    let small = dicts.get("a", 25_000);
    assert_eq!(small.count(), small.keys(1_000).len());
    assert!((15..=25).contains(&small.keys(1_000).len()), "{}", small.keys(1_000).len());
    assert!(small.get("key 99").is_some() && small.get("key 0").is_none(), "the newest stay");
    assert!(dicts.get("b", 1 << 20).get("key 99").is_none());
}

#[test]
fn workers_count_together_and_make_room_for_each_other() {
    let dict = room_for(8, 1_000);
    let work = |worker: usize| {
        for n in 0..2_000 {
            assert!(dict.incr("n", 1.0, Some((0.0, None))).is_ok());
            dict.set(format!("key {}", (worker * 7 + n) % 20), vec![0; 1_000], None).unwrap();
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|worker| drop(scope.spawn(move || work(worker)))));
    assert!(dict.free_space() < dict.capacity());
    let count = SharedDict::new(1 << 20);
    std::thread::scope(|scope| {
        (0..4).for_each(|_| {
            scope.spawn(|| (0..1_000).for_each(|_| assert!(count.incr("n", 1.0, Some((0.0, None))).is_ok())));
        });
    });
    assert_eq!(count.get("n"), Some(4_000.0.into()));
}

#[test]
fn a_ttl_beyond_the_clock_is_for_ever() {
    let dict = SharedDict::new(1 << 20);
    dict.set("a", "one", Some(Duration::MAX)).unwrap();
    assert!(dict.expire("a", Some(Duration::MAX)) && dict.get("a").is_some());
}

#[test]
fn a_list_that_was_long_takes_no_more_than_it_has() {
    let entries = |list: usize| format!("list {list}");
    let dict = SharedDict::new(100_000);
    for list in 0..50 {
        while dict.rpush(entries(list), "").is_ok() {}
        while dict.llen(entries(list)).unwrap() > 1 {
            dict.lpop(entries(list)).unwrap();
        }
    }
    let room = |key: &str| {
        dict.with(key.as_bytes(), |entries, budget| match entries.find_live(key.as_bytes(), budget) {
            Some(Entry { value: Stored::List { elements, .. }, .. }) => elements.capacity(),
            _ => 0,
        })
    };
    let rooms: usize = (0..50).map(|list| room(&entries(list))).sum();
    assert!((50..=50 * 64).contains(&rooms), "{rooms}");
    assert_eq!(dict.count(), 50);
}
