//! The name that the program is called by: `weir`, or a link with a name that Kong's image has.
use std::ffi::OsString;
use std::path::Path;

/// What the program answers as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    /// `weir`, and a gateway with plugins of its own.
    Weir,
    /// `kong`: with Kong's folder, words and exit codes.
    Kong,
    /// `docker-entrypoint.sh`, which prepares the environment of another command.
    Entrypoint,
}

impl Program {
    /// By the first word of the command line.
    pub(crate) fn of(command_line: &[OsString]) -> Program {
        let name = command_line.first().and_then(|path| Path::new(path).file_name());
        match name.and_then(|name| name.to_str()) {
            Some("kong") => Program::Kong,
            Some("docker-entrypoint.sh" | "entrypoint.sh") => Program::Entrypoint,
            _ => Program::Weir,
        }
    }

    /// What this process was called by.
    pub(crate) fn of_this_process() -> Program {
        Program::of(&std::env::args_os().take(1).collect::<Vec<_>>())
    }

    /// How the program calls itself in commands.
    pub(crate) fn command(self) -> &'static str {
        match self {
            Program::Kong => "kong",
            Program::Weir | Program::Entrypoint => "weir",
        }
    }

    /// How messages name the product. Scripts look for Kong's messages.
    pub(crate) fn product(self) -> &'static str {
        match self {
            Program::Kong => "Kong",
            Program::Weir | Program::Entrypoint => "Weir",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_of_the_path_counts() {
        let of = |path: &str| Program::of(&[path.into(), "start".into()]);
        assert_eq!(of("/usr/local/bin/kong"), Program::Kong);
        assert_eq!(of("/docker-entrypoint.sh"), Program::Entrypoint);
        assert_eq!(of("weir"), Program::Weir);
        assert_eq!(of("/opt/kong/my-gateway"), Program::Weir);
        assert_eq!(Program::of(&[]), Program::Weir);
    }
}
