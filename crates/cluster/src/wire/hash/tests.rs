//! The vectors of `vectors.json`, which Kong's own code computed, and what of the text form they do not show.
use super::*;
use serde_json::{Map, json};

/// The hashes of a configuration that is there as JSON.
fn hashes(table: &Map<String, Value>) -> Hashes {
    let of = |value: &Value| {
        let mut hasher = Hasher::default();
        hasher.value(value);
        hasher.finish()
    };
    let parts = Hashes::PARTS.map(|part| table.get(part).map_or(ConfigHash::EMPTY, of));
    let mut rest = table.clone();
    rest.retain(|name, _| !Hashes::PARTS.contains(&name.as_str()));
    Hashes::of_parts(parts, of(&Value::Object(rest)))
}

#[derive(Deserialize)]
struct Vector {
    config_table: Map<String, Value>,
    hashes: Map<String, Value>,
}

#[test]
fn hashes_are_those_of_kong() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("vectors.json")).unwrap();
    for Vector { config_table, hashes: expected } in &vectors {
        let ours = serde_json::to_value(hashes(config_table)).unwrap();
        for (part, hash) in expected {
            assert_eq!(ours[part], *hash, "{part} of {config_table:?}");
        }
    }
}

#[test]
fn a_long_text_is_folded_as_by_kong() {
    let service =
        |n: usize| json!({ "id": format!("{n:08}-0000-4000-8000-000000000000"), "name": format!("s{n}") });
    let hash = Hasher::list_hash((1..60_001).map(service).collect::<Vec<_>>().into_iter());
    assert_eq!(hash.to_string(), "f598d2d06b240a77b9427a13b7007e60");
}

#[test]
fn numbers_are_written_as_by_c() {
    for (number, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (80.0, "80"),
        (1e15, "1e+15"),
        (1e14, "1e+14"),
        (99_999_999_999_999.0, "99999999999999"),
        (123_456_789_012_345.0, "1.2345678901235e+14"),
        (1_700_000_000.123, "1700000000.123"),
        (0.1, "0.1"),
        (0.1 + 0.2, "0.3"),
        (0.0001, "0.0001"),
        (0.000_012_5, "1.25e-05"),
        (-1.5e300, "-1.5e+300"),
        // Ties: the next digit is the last one, and is 5.
        (12_345_678_901_234.5, "12345678901235"),
        (12_345_678_901_235.5, "12345678901236"),
        (-12_345_678_901_234.5, "-12345678901235"),
        (99_999_999_999_999.5, "1e+14"),
    ] {
        let mut out = Vec::new();
        number::write(number, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), text);
    }
}

#[test]
fn the_payload_of_a_ping_is_a_hash() {
    assert_eq!(ConfigHash::read(b"3231812278363e4825b8930600471d28").unwrap().to_string().len(), 32);
    for payload in ["", "3231", "3231812278363e4825b8930600471d28 ", "3231812278363e4825b8930600471d2\n"] {
        assert_eq!(ConfigHash::read(payload.as_bytes()), None);
    }
    assert_eq!(ConfigHash::of_version(17).to_string(), format!("{:032}", 17));
}
