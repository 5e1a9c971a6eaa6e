//! Provenance: where and with what a run was measured.
use crate::observe::{Layout, allowed_cpus};
use crate::result::{HostManifest, Manifest};
use crate::subprocess::output_within;
use aws_lc_rs::digest::{Context, SHA256, digest};
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

/// What is known when a run begins; targets, configurations and the end are for later.
#[must_use]
pub fn collect(layout: &Layout) -> Manifest {
    let HostManifest { kernel, cpu, cpus, memory_mib, machine, .. } = this_machine();
    Manifest {
        started: now(),
        command: public(std::env::args()),
        laboratory: laboratory(),
        kernel,
        cpu,
        cpus,
        memory_mib,
        machine,
        pressure_before: pressure(),
        rustc: target_version(&["rustc".to_owned(), "--version".to_owned()]).unwrap_or_default(),
        cpu_sharing: layout.sharing,
        pinning: layout.words.clone(),
        ..Manifest::default()
    }
}

/// What is known of this machine.
#[must_use]
pub fn this_machine() -> HostManifest {
    let system = rustix::system::uname();
    let kernel = [system.sysname(), system.release(), system.version(), system.machine()];
    HostManifest {
        kernel: kernel.map(|part| part.to_string_lossy().into_owned()).join(" "),
        cpu: named("/proc/cpuinfo", "model name")
            .unwrap_or_else(|| system.machine().to_string_lossy().into_owned()),
        cpus: u32::try_from(allowed_cpus().len()).unwrap_or(u32::MAX),
        memory_mib: memory_mib(),
        machine: machine(),
        ..HostManifest::default()
    }
}

/// This moment, to the second, by RFC 3339 in UTC.
#[must_use]
pub fn now() -> String {
    let now = OffsetDateTime::now_utc();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}

/// The SHA-256 of a file, in hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_of(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut context = Context::new(&SHA256);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            length => context.update(&buffer[..length]),
        }
    }
    Ok(hex(context.finish().as_ref()))
}

/// The SHA-256 of a text, in hexadecimal.
#[must_use]
pub fn sha256_of_text(text: &str) -> String {
    hex(digest(&SHA256, text.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The first line that a program says of its version, on either output.
///
/// # Errors
/// When it cannot be run, does not end in time, or fails without a word.
pub fn target_version(command: &[String]) -> io::Result<String> {
    let (program, arguments) =
        command.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let output = output_within(Command::new(program).args(arguments), VERSION_TIMEOUT)?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    match said.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => Ok(line.to_owned()),
        None => Err(io::Error::other(format!("{program} says nothing of its version ({})", output.status))),
    }
}

/// A path as it may be published: the home directory, which names a person, as `~`.
#[must_use]
pub fn shortened(path: &str) -> String {
    match std::env::var("HOME") {
        Ok(home) if home.len() > 1 => match path.strip_prefix(&home) {
            Some(rest) if rest.is_empty() || rest.starts_with('/') => format!("~{rest}"),
            _ => path.to_owned(),
        },
        _ => path.to_owned(),
    }
}

/// Its hash says more than a commit could: a binary may be older than the work tree it lies in.
fn laboratory() -> String {
    let hash = std::env::current_exe().and_then(|path| sha256_of(&path)).unwrap_or_default();
    let commit = option_env!("WEIRLAB_COMMIT").map_or(String::new(), |commit| format!(", commit {commit}"));
    format!("{}{commit}, sha256 {hash}", env!("CARGO_PKG_VERSION"))
}

/// Arguments without what must stay secret.
fn public(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut public = Vec::new();
    let mut secret_follows = false;
    for argument in arguments {
        let shown = if secret_follows { "***".to_owned() } else { without_secrets(&argument) };
        secret_follows = argument.starts_with("--") && !argument.contains('=') && is_secret(&argument);
        public.push(shown);
    }
    public
}

fn without_secrets(argument: &str) -> String {
    if let Some((scheme, rest)) = argument.split_once("://")
        && let Some((_, host)) = rest.split('/').next().and_then(|authority| authority.rsplit_once('@'))
    {
        let path = rest.find('/').map_or("", |start| &rest[start..]);
        return format!("{scheme}://***@{host}{path}");
    }
    match argument.split_once(['=', ':']) {
        Some((name, _)) if is_secret(name) => format!("{}***", &argument[..=name.len()]),
        _ => shortened(argument),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "passwd", "secret", "token", "apikey", "api-key", "api_key", "authorization", "cookie"]
        .iter()
        .any(|word| name.contains(word))
}

fn memory_mib() -> u64 {
    let total = named("/proc/meminfo", "MemTotal").unwrap_or_default();
    total.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// What may change figures, as far as this machine shows it.
fn machine() -> BTreeMap<String, String> {
    const CPU: &str = "/sys/devices/system/cpu";
    let mut found: BTreeMap<String, String> = [
        ("governor", format!("{CPU}/cpu0/cpufreq/scaling_governor")),
        ("smt", format!("{CPU}/smt/control")),
        ("clocksource", "/sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned()),
        ("transparent_hugepage", "/sys/kernel/mm/transparent_hugepage/enabled".to_owned()),
        ("vendor", "/sys/class/dmi/id/sys_vendor".to_owned()),
        ("product", "/sys/class/dmi/id/product_name".to_owned()),
    ]
    .into_iter()
    .filter_map(|(name, path)| Some((name.to_owned(), line(&path)?)))
    .collect();
    found.extend(SYSCTLS.iter().filter_map(|name| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Some(((*name).to_owned(), line(&path)?))
    }));
    found.extend(turbo().map(|state| ("turbo".to_owned(), state)));
    found.extend(hypervisor().map(|name| ("hypervisor".to_owned(), name)));
    found.extend(mitigations().map(|summary| ("mitigations".to_owned(), summary)));
    found.insert("nofile".to_owned(), open_files());
    found
}

/// Of the last ten seconds, such as 0.12 of `some avg10=12.00 avg60=…`.
fn pressure() -> Option<f64> {
    let some = line("/proc/pressure/cpu")?;
    let average = some.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    average.parse::<f64>().ok().map(|percent| percent / 100.0)
}

const SYSCTLS: [&str; 9] = [
    "net.core.somaxconn",
    "net.core.busy_poll",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_congestion_control",
    "kernel.sched_autogroup_enabled",
    "kernel.perf_event_paranoid",
];

fn turbo() -> Option<String> {
    let state = |on: bool| if on { "on" } else { "off" }.to_owned();
    let boost = line("/sys/devices/system/cpu/cpufreq/boost").map(|value| state(value == "1"));
    boost.or_else(|| line("/sys/devices/system/cpu/intel_pstate/no_turbo").map(|value| state(value == "0")))
}

fn hypervisor() -> Option<String> {
    if let Some(name) = line("/sys/hypervisor/type") {
        return Some(name);
    }
    let flags = named("/proc/cpuinfo", "flags")?;
    flags.split(' ').any(|flag| flag == "hypervisor").then(|| "yes".to_owned())
}

/// Such as `mitigated: spectre_v1, spectre_v2; vulnerable: mds; not affected: 9`.
fn mitigations() -> Option<String> {
    let folder = fs::read_dir("/sys/devices/system/cpu/vulnerabilities").ok()?;
    let mut states: BTreeMap<String, String> = BTreeMap::new();
    for entry in folder.flatten() {
        let state = line(&entry.path().to_string_lossy())?;
        states.insert(entry.file_name().to_string_lossy().into_owned(), state);
    }
    let with = |start: &str| -> Vec<&str> {
        states.iter().filter(|(_, state)| state.starts_with(start)).map(|(name, _)| name.as_str()).collect()
    };
    let (mitigated, vulnerable, spared) =
        (with("Mitigation"), with("Vulnerable"), with("Not affected").len());
    let or_none = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Some(format!(
        "mitigated: {}; vulnerable: {}; not affected: {spared}",
        or_none(mitigated),
        or_none(vulnerable)
    ))
}

fn open_files() -> String {
    let limit = getrlimit(Resource::Nofile);
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    format!("{} (at most {})", text(limit.current), text(limit.maximum))
}

/// The first line of a small file.
fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().next()?.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
    (!line.is_empty()).then_some(line)
}

/// The value of the first line `name : value`.
fn named(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let manifest = collect(&Layout::plan(&[0, 1], 1));
        assert!(manifest.started.ends_with('Z') && manifest.started.len() == 20, "{}", manifest.started);
        assert!(manifest.kernel.starts_with("Linux "), "{}", manifest.kernel);
        assert!(!manifest.cpu.is_empty() && manifest.cpus > 0 && manifest.memory_mib > 0);
        assert!(manifest.machine["nofile"].contains("at most"), "{:?}", manifest.machine);
        assert!(manifest.machine.contains_key("net.core.somaxconn"), "{:?}", manifest.machine);
        assert!(manifest.laboratory.starts_with(env!("CARGO_PKG_VERSION")), "{}", manifest.laboratory);
        assert!(manifest.cpu_sharing && manifest.pinning.contains("share CPU 1"), "{}", manifest.pinning);
    }

    #[test]
    fn a_file_has_the_hash_that_others_compute() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(file.path()).unwrap(), expected);
    }

    #[test]
    fn secrets_stay_out_of_the_command_line() {
        let said = [
            "weirlab",
            "load",
            "--token",
            "abc",
            "--password=abc",
            "-H",
            "Authorization: Basic abc",
            "http://me:abc@localhost:80/x?y=@",
            "scenarios/kong/rate-limiting-key-auth-1",
            "--targets=weir",
        ];
        let shown = public(said.into_iter().map(str::to_owned));
        assert_eq!(
            shown[2..],
            [
                "--token",
                "***",
                "--password=***",
                "-H",
                "Authorization:***",
                "http://***@localhost:80/x?y=@",
                "scenarios/kong/rate-limiting-key-auth-1",
                "--targets=weir"
            ]
        );
    }

    #[test]
    fn a_version_may_be_said_on_either_output() {
        let version = |script: &str| target_version(&["sh", "-c", script].map(str::to_owned));
        assert_eq!(version("echo; echo server 1.2; echo built").unwrap(), "server 1.2");
        assert_eq!(version("echo server 1.3 >&2").unwrap(), "server 1.3");
        assert!(version("exit 2").unwrap_err().to_string().contains("exit status: 2"));
        assert_eq!(
            target_version(&["no-such-server".to_owned()]).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
