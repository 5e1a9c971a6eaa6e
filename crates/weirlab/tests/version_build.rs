//! Versions of a small project that has the real one's names: two commits whose binaries say different things.
#![allow(clippy::unwrap_used)]
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;
use weirlab::version::{self, Built, Profile, VersionError, VersionSpec};

struct Project {
    folder: TempDir,
}

impl Project {
    /// `v0.1.0` says one, `main` says two; the module that says it is not the one that is compiled first.
    fn new() -> Self {
        let project = Project { folder: TempDir::new().unwrap() };
        project.git(&["init", "--quiet", "--initial-branch=main"]);
        project.write("Cargo.toml", MANIFEST);
        project.write(".gitignore", "/target\n");
        project.write("src/main.rs", "mod word;\nfn main() { println!(\"{}\", word::WORD); }\n");
        project.commit_saying("one");
        project.git(&["tag", "v0.1.0"]);
        project.commit_saying("two");
        project
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn cache(&self) -> PathBuf {
        version::default_cache(self.path()).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn say(&self, word: &str) {
        self.write("src/word.rs", &format!("pub const WORD: &str = \"{word}\";\n"));
    }

    fn commit_saying(&self, word: &str) {
        self.say(word);
        self.commit();
    }

    fn commit(&self) {
        self.git(&["add", "--all"]);
        self.git(&["-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "--quiet", "-m", "x"]);
    }

    fn git(&self, arguments: &[&str]) -> String {
        let output = Command::new("git").arg("-C").arg(self.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn resolve(&self, spec: &str) -> Result<(Built, Vec<String>), VersionError> {
        let mut said = Vec::new();
        let spec = VersionSpec::parse(spec).unwrap();
        let built =
            version::resolve(&spec, self.path(), &self.cache(), &mut |line| said.push(line.to_owned()))?;
        Ok((built, said))
    }

    fn word_of(&self, spec: &str) -> String {
        run(&self.resolve(spec).unwrap().0.binary)
    }

    fn refused(&self, spec: &str) -> String {
        self.resolve(spec).unwrap_err().to_string()
    }

    /// What was built from commits, so that it is built anew.
    fn forget_binaries(&self) {
        fs::remove_dir_all(self.cache().join("bin")).unwrap();
    }
}

const MANIFEST: &str = r#"
[package]
name = "weir-gateway"
version = "0.1.0"
edition = "2024"

[[bin]]
name = "weir"
path = "src/main.rs"

[profile.quick]
inherits = "release"
"#;

fn run(binary: &Path) -> String {
    let output = Command::new(binary).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn every_version_is_what_its_commit_says() {
    let project = Project::new();
    let head = project.git(&["rev-parse", "HEAD"]);
    let (built, said) = project.resolve("git:main").unwrap();
    assert_eq!(run(&built.binary), "two");
    assert_eq!(
        (built.label.as_str(), built.commit.as_deref(), built.dirty),
        ("git:main", Some(head.as_str()), false)
    );
    assert!(said.iter().any(|line| line.starts_with("git:main: Compiling weir-gateway")), "{said:?}");
    assert_eq!(project.word_of("v0.1.0"), "one");

    // To and fro at once, with nothing kept but what cargo has compiled.
    for _ in 0..2 {
        project.forget_binaries();
        assert_eq!(project.word_of("git:main"), "two");
        assert_eq!(project.word_of("git:HEAD~1"), "one");
        assert_eq!(project.word_of("worktree"), "two");
    }
    assert_eq!(run(&built.binary), "two", "a binary that was handed out stays what it was");
    let (_, said) = project.resolve("git:main").unwrap();
    assert_eq!(said, ["git:main is built already"]);
}

#[test]
fn the_users_checkout_is_left_alone() {
    let project = Project::new();
    project.git(&["checkout", "--quiet", "-b", "work"]);
    project.say("three");
    assert_eq!(project.word_of("v0.1.0"), "one");
    assert_eq!(project.word_of("git:HEAD"), "two", "changes are not of the commit");
    assert_eq!(project.git(&["branch", "--show-current"]), "work");
    assert_eq!(project.git(&["status", "--porcelain"]), "M src/word.rs");

    let (built, _) = project.resolve("worktree").unwrap();
    assert_eq!(run(&built.binary), "three");
    assert!(built.dirty);
    project.say("four");
    assert_eq!(project.word_of("worktree"), "four");
    assert_eq!(run(&built.binary), "three", "an earlier one stays");
}

#[test]
fn a_cache_that_was_removed_is_made_anew() {
    let project = Project::new();
    assert_eq!(project.word_of("v0.1.0"), "one");
    fs::remove_dir_all(project.cache()).unwrap();
    let spec = VersionSpec::parse("v0.1.0").unwrap();
    let built =
        version::resolve_as(Profile::Quick, &spec, project.path(), &project.cache(), &mut |_| ()).unwrap();
    assert_eq!(run(&built.binary), "one");
    assert!(built.binary.to_string_lossy().contains("-quick/"), "{}", built.binary.display());
    // A folder that is in the way without being a work tree gives way.
    fs::remove_dir_all(project.cache().join("tree")).unwrap();
    fs::create_dir(project.cache().join("tree")).unwrap();
    assert_eq!(project.word_of("git:main"), "two");
}

#[test]
fn what_is_wrong_is_said() {
    let project = Project::new();
    let unknown = project.refused("git:no-such-branch");
    assert!(
        unknown.contains("knows no commit \"no-such-branch\"") && unknown.contains("git fetch"),
        "{unknown}"
    );
    let tag = project.refused("v9.9.9");
    assert!(tag.contains("knows no tag \"v9.9.9\""), "{tag}");
    let option = project.refused("git:--all");
    assert!(option.contains("knows no commit"), "{option}");
    let binary = project.refused("/no/such/weir");
    assert!(binary.contains("/no/such/weir cannot be used"), "{binary}");
    let text = project.path().join("Cargo.toml").display().to_string();
    assert!(project.refused(&text).contains("is not a program"));

    project.write("src/word.rs", "pub const WORD: &str = 5;\n");
    project.commit();
    let broken = project.refused("git:main");
    assert!(
        broken.starts_with("git:main does not compile") && broken.contains("mismatched types"),
        "{broken}"
    );
    assert_eq!(project.word_of("git:HEAD~1"), "two", "what does not compile blocks no other version");

    let elsewhere = TempDir::new().unwrap();
    let spec = VersionSpec::Commit("main".to_owned());
    let error = version::resolve(&spec, elsewhere.path(), elsewhere.path(), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("is not in a git repository"), "{error}");
}

#[test]
fn two_runs_do_not_build_in_one_cache_at_once() {
    let project = Project::new();
    fs::create_dir_all(project.cache()).unwrap();
    let lock = File::create(project.cache().join("lock")).unwrap();
    lock.lock().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let spec = VersionSpec::parse("git:main").unwrap();
            let mut progress = |line: &str| sender.send(line.to_owned()).unwrap();
            version::resolve(&spec, project.path(), &project.cache(), &mut progress).unwrap()
        });
        assert_eq!(receiver.recv().unwrap(), "another run builds in this cache: waiting for it");
        drop(lock);
        assert_eq!(run(&other.join().unwrap().binary), "two");
    });
}
