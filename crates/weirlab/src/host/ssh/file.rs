//! The hosts file: which machines there are, how ssh reaches them, and what runs where.
use crate::catalogue::{Span, parse_toml, position, read_text};
use crate::host::HostError;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toml::Spanned;

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    Target,
    Upstream,
    Generator,
    Database,
}

impl Role {
    /// Those without which nothing can be measured.
    const NEEDED: [Role; 3] = [Role::Target, Role::Upstream, Role::Generator];

    pub(super) fn name(self) -> &'static str {
        match self {
            Role::Target => "target",
            Role::Upstream => "upstream",
            Role::Generator => "generator",
            Role::Database => "database",
        }
    }
}

/// The file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    prepare: Prepare,
    hosts: BTreeMap<String, Entry>,
}

/// How machines are prepared.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Prepare {
    /// Whether settings are changed.
    pub(super) settings: bool,
    /// The load average of a minute, for each core, that is waited for.
    pub(super) load_average: f64,
    /// How long that is waited for.
    pub(super) wait: Span,
}

impl Default for Prepare {
    fn default() -> Self {
        Prepare { settings: true, load_average: 0.2, wait: Span(Duration::from_secs(120)) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    roles: Spanned<Vec<Role>>,
    address: Spanned<String>,
    user: Option<Spanned<String>>,
    port: Option<Spanned<u16>>,
    identity_file: Option<Spanned<PathBuf>>,
    known_hosts: Option<Spanned<PathBuf>>,
    internal_address: Option<Spanned<IpAddr>>,
    weirlab: Option<Spanned<PathBuf>>,
}

/// A machine.
#[derive(Clone, Debug)]
pub(super) struct HostEntry {
    pub(super) name: String,
    pub(super) roles: Vec<Role>,
    pub(super) address: String,
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) identity_file: Option<PathBuf>,
    pub(super) known_hosts: Option<PathBuf>,
    /// The address of the data path.
    pub(super) internal_address: IpAddr,
    /// A `weirlab` for machines of another architecture.
    pub(super) weirlab: Option<PathBuf>,
    file: PathBuf,
    /// Where fields are written.
    lines: BTreeMap<&'static str, usize>,
}

impl HostEntry {
    /// Where a field is written, or the host's address where it is not.
    pub(super) fn place(&self, field: &'static str) -> String {
        let written = self.lines.get(field).or(self.lines.get("address"));
        let line = written.map_or(String::new(), |line| format!(":{line}"));
        format!("{}{line}: host {}, {field}", self.file.display(), self.name)
    }

    /// The error for a host that cannot be used: what is wrong, and how to fix it.
    pub(super) fn unusable(&self, field: &'static str, what: &str, fix: &str) -> HostError {
        HostError::Unusable(format!("{}: {what}: {fix}", self.place(field)))
    }

    pub(super) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

/// The hosts of a file, by name, and how they are prepared.
pub(super) fn read(file: &Path) -> Result<(Vec<HostEntry>, Prepare), HostError> {
    let unusable = |error: crate::catalogue::CatalogueError| HostError::Unusable(error.to_string());
    let text = read_text(file).map_err(unusable)?;
    let parsed: File = parse_toml(file, &text).map_err(unusable)?;
    let reader = Reader { file, text: &text };
    let hosts = parsed.hosts.into_iter().map(|(name, entry)| reader.host(name, entry));
    let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
    check_roles(file, &hosts)?;
    Ok((hosts, parsed.prepare))
}

/// Each role that is needed has one machine, and no role has two.
fn check_roles(file: &Path, hosts: &[HostEntry]) -> Result<(), HostError> {
    for role in Role::NEEDED.into_iter().chain([Role::Database]) {
        let holders: Vec<&HostEntry> = hosts.iter().filter(|host| host.has(role)).collect();
        let name = role.name();
        match holders.as_slice() {
            [first, second, ..] => {
                let what = format!("host {} has the role {name} too", first.name);
                return Err(second.unusable("roles", &what, "give it to one of them"));
            }
            [] if role != Role::Database => {
                return Err(HostError::Unusable(format!(
                    "{}: no host has the role {name}: add it to the roles of one",
                    file.display()
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
}

impl Reader<'_> {
    fn host(&self, name: String, entry: Entry) -> Result<HostEntry, HostError> {
        let mut lines = BTreeMap::new();
        let address = self.noted("address", Some(entry.address), &mut lines).unwrap_or_default();
        let mut host = HostEntry {
            roles: self.noted("roles", Some(entry.roles), &mut lines).unwrap_or_default(),
            user: self.noted("user", entry.user, &mut lines),
            port: self.noted("port", entry.port, &mut lines),
            identity_file: self.path("identity_file", entry.identity_file, &mut lines),
            known_hosts: self.path("known_hosts", entry.known_hosts, &mut lines),
            weirlab: self.path("weirlab", entry.weirlab, &mut lines),
            internal_address: IpAddr::from([0, 0, 0, 0]),
            file: self.file.to_owned(),
            name,
            address,
            lines: BTreeMap::new(),
        };
        let internal = self.noted("internal_address", entry.internal_address, &mut lines);
        host.lines = lines;
        let internal = internal.or_else(|| host.address.parse().ok());
        host.internal_address = internal.ok_or_else(|| {
            let what = format!("{} is a name, and the data path needs an address", host.address);
            host.unusable(
                "address",
                &what,
                "add internal_address = \"10.0.0.2\", where the other hosts reach it",
            )
        })?;
        match host.identity_file.as_deref().filter(|path| !path.is_file()) {
            None => Ok(host),
            Some(path) => {
                let what = format!("{} is not there", path.display());
                Err(host.unusable("identity_file", &what, "name the private key that the host accepts"))
            }
        }
    }

    /// A field's value; its line is noted.
    fn noted<T>(
        &self,
        name: &'static str,
        value: Option<Spanned<T>>,
        lines: &mut BTreeMap<&'static str, usize>,
    ) -> Option<T> {
        let value = value?;
        lines.insert(name, position(self.text, value.span().start).0);
        Some(value.into_inner())
    }

    /// A path as seen from the file's folder; `~` is the home directory.
    fn path(
        &self,
        name: &'static str,
        value: Option<Spanned<PathBuf>>,
        lines: &mut BTreeMap<&'static str, usize>,
    ) -> Option<PathBuf> {
        let path = self.noted(name, value, lines)?;
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let folder = std::path::absolute(self.file).unwrap_or_default();
        let folder = folder.parent().unwrap_or(Path::new("/"));
        Some(match path.strip_prefix("~") {
            Ok(rest) => home.join(rest),
            Err(_) => folder.join(path),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts.toml");
        std::fs::write(&file, text).unwrap();
        let error = read(&file).unwrap_err().to_string();
        error.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn mistakes_have_their_place_and_a_fix() {
        let all = "roles = [\"target\", \"upstream\", \"generator\"]\naddress = \"192.0.2.1\"\n";
        let cases = [
            (
                "[hosts.a]\nroles = [\"target\"]\naddress = \"192.0.2.1\"\n".to_owned(),
                "hosts.toml: no host has the role upstream",
            ),
            (
                format!("[hosts.a]\n{all}[hosts.b]\nroles = [\"target\"]\naddress = \"192.0.2.2\"\n"),
                "hosts.toml:5: host b, roles: host a has the role target too",
            ),
            (
                "[hosts.a]\nroles = []\naddress = \"gate\"\n".to_owned(),
                "hosts.toml:3: host a, address: gate is a name",
            ),
            (
                format!("[hosts.a]\n{all}identity_file = \"no-key\"\n"),
                "hosts.toml:4: host a, identity_file: ",
            ),
            (format!("[hosts.a]\n{all}prot = 22\n"), "did you mean `port`?"),
            ("[hosts.a]\nroles = [\"targets\"]\n".to_owned(), "hosts.toml:2:10: unknown variant `targets`"),
        ];
        for (text, wanted) in cases {
            let said = refused(&text);
            assert!(said.contains(wanted), "{said}");
        }
    }
}
