//! The arguments of `weir compare`.
use clap::Args;
use std::path::PathBuf;

/// What is compared, and how.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The base URL of the gateway that is the reference, such as Kong's proxy: `http://kong:8000`.
    #[arg(long, value_name = "URL", required_unless_present = "print_rules")]
    pub(crate) a: Option<String>,
    /// The base URL of the other gateway.
    #[arg(long, value_name = "URL", required_unless_present = "print_rules")]
    pub(crate) b: Option<String>,
    /// The requests: a list or an HTTP file (`GET /path`, headers, a body), an access log, records of file-log, or a HAR
    /// file; `-` is the standard input.
    #[arg(required_unless_present = "print_rules")]
    pub(crate) requests: Option<PathBuf>,
    /// Rules of what is not compared, in TOML; they come before the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub(crate) rules: Option<PathBuf>,
    /// Print the built-in rules.
    #[arg(long)]
    pub(crate) print_rules: bool,
    /// Where to write the HTML page.
    #[arg(long, value_name = "FILE", default_value = "compare.html")]
    pub(crate) report: PathBuf,
    /// A header that each request gets unless it has one of that name, as `name: value`; may be given several times.
    #[arg(short = 'H', long = "header", value_name = "NAME:VALUE", value_parser = super::name_and_value)]
    pub(crate) headers: Vec<(String, String)>,
    /// Send requests of all methods. Without it, only those of GET, HEAD and OPTIONS are sent, because others may change data.
    #[arg(long)]
    pub(crate) unsafe_methods: bool,
    /// Do not send safe requests to `a` twice. The second response shows what varies by itself, which is not compared.
    #[arg(long)]
    pub(crate) once: bool,
    /// How many requests are in flight at a time.
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: u16,
    /// How long a response may take, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) timeout: u64,
    /// Do not verify certificates.
    #[arg(short = 'k', long)]
    pub(crate) insecure: bool,
}
