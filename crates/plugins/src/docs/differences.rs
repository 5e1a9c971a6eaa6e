//! Where plugins differ on purpose: `docs/compatibility.md` says it of Kong's, `docs/coming-from-apisix.md` of APISIX's. The page
//! of each plugin repeats it, unless it has a section of its own.

use std::path::Path;

const OF_APISIX: &str = "## Differences from APISIX";
const OF_KONG: &str = "## Differences from Kong";

/// The table of `docs/compatibility.md` that begins so.
const TABLE_OF_KONG: &str = "| plugin | Kong | Weir | why |";
const NONE_FROM_KONG: &str = "[Compatibility](../compatibility.md#plugins-that-differ-on-purpose) lists none beside those of all plugins.";

/// The table of `docs/coming-from-apisix.md` that begins so.
const TABLE_OF_APISIX: &str = "| plugin | here |";
const NONE_FROM_APISIX: &str = "It is APISIX's plugin. [Coming from APISIX](../coming-from-apisix.md#plugins) lists no difference of its own.";

/// What the two documents say of plugins: the cells of their tables.
pub(super) struct Documents {
    of_kong: Vec<Vec<String>>,
    of_apisix: Vec<Vec<String>>,
}

/// Where a plugin differs.
pub(super) struct Differences {
    /// The section of its page, with the heading; nothing if the page has it already.
    pub(super) section: String,
    /// The end of a link to that section, and its text.
    pub(super) anchor: String,
    pub(super) label: String,
}

impl Documents {
    pub(super) fn read() -> Self {
        let table = |document: &str, head: &str| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(document);
            let text = std::fs::read_to_string(file).unwrap();
            let (_, table) =
                text.split_once(head).unwrap_or_else(|| panic!("{document} has no table {head}"));
            let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
            rows.map(|row| cells(row, document)).collect()
        };
        Self {
            of_kong: table("compatibility.md", TABLE_OF_KONG),
            of_apisix: table("coming-from-apisix.md", TABLE_OF_APISIX),
        }
    }

    /// Where a plugin differs whose page has this text.
    pub(super) fn differences(&self, name: &str, is_of_kong: bool, text: &str) -> Differences {
        if text.contains(OF_APISIX) {
            return Differences::of(OF_APISIX, "from APISIX", None);
        }
        if let Some(rest) = self.of_apisix(name).filter(|_| !is_of_kong) {
            return match rest {
                "" => Differences::of(OF_APISIX, "none", Some(NONE_FROM_APISIX)),
                rest => {
                    let text = format!("It is APISIX's plugin{rest}.");
                    Differences::of(OF_APISIX, "from APISIX", Some(&text))
                }
            };
        }
        let rows = self.of_kong(name);
        assert!(is_of_kong || !rows.is_empty(), "{name}: no document says how it differs");
        match rows.len() {
            0 => Differences::of(OF_KONG, "none", Some(NONE_FROM_KONG)),
            number => {
                let text = format!("| Kong | Weir | why |\n|---|---|---|\n{}", rows.join("\n"));
                Differences::of(OF_KONG, &format!("{number} from Kong"), Some(&text))
            }
        }
    }

    /// The rows about one of Kong's plugins.
    fn of_kong(&self, name: &str) -> Vec<String> {
        let concerned = self.of_kong.iter().filter(|row| row[0].split(", ").any(|it| it == name));
        concerned.map(|row| format!("| {} |", row[1..].join(" | "))).collect()
    }

    /// What follows the link to one of APISIX's plugins.
    fn of_apisix(&self, name: &str) -> Option<&str> {
        let theirs = name.strip_prefix("apisix-").unwrap_or(name);
        let row = self.of_apisix.iter().find(|row| row[0].split(", ").any(|it| it == theirs))?;
        row[1].contains(&format!("({name}.md)")).then_some(())?;
        let mut rest = row[1].as_str();
        while let Some((_, behind)) = rest.trim_start().strip_prefix('[').and_then(|it| it.split_once(')')) {
            rest = behind;
        }
        Some(rest)
    }
}

impl Differences {
    fn of(heading: &str, label: &str, text: Option<&str>) -> Self {
        let anchor = heading.trim_start_matches("## ").to_lowercase().replace(' ', "-");
        let section = text.map(|text| format!("{heading}\n\n{text}\n\n")).unwrap_or_default();
        Self { section, anchor, label: label.to_owned() }
    }
}

/// The cells of a table's row, with links as they are among the pages of plugins.
fn cells(row: &str, document: &str) -> Vec<String> {
    let row = row.trim_start_matches("| ").trim_end_matches('|');
    row.split(" | ").map(|cell| relinked(cell.trim(), document)).collect()
}

fn relinked(cell: &str, document: &str) -> String {
    let mut parts = cell.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let link = match part {
            part if part.starts_with("https://") => part.to_owned(),
            part if part.starts_with('#') => format!("../{document}{part}"),
            part => match part.strip_prefix("plugins/") {
                Some(page) => page.to_owned(),
                None => format!("../{part}"),
            },
        };
        text.push_str("](");
        text.push_str(&link);
    }
    text
}

#[test]
fn differences_from_kong_are_those_of_plugins() {
    let known = super::index::names();
    for row in Documents::read().of_kong {
        assert_eq!(row.len(), 4, "{row:?}");
        let mut names = row[0].split(", ").filter(|name| *name != "all");
        assert!(names.all(|name| known.contains(name)), "{}: no such plugin", row[0]);
    }
}

#[test]
fn links_lead_to_the_same_places_from_another_folder() {
    let text = "[a](plugins/jwt.md#keys), [b](lua.md), [c](#here) and [d](https://a.test/)";
    let expected = "[a](jwt.md#keys), [b](../lua.md), [c](../x.md#here) and [d](https://a.test/)";
    assert_eq!(relinked(text, "x.md"), expected);
}
