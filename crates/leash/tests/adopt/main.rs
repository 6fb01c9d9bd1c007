//! `leash adopt` and `leash release` on files in the format of the clients: only the servers' entries change, and
//! everything is restored.

mod bytes;
mod corpus;
mod disk;
mod edited;
mod hidden;
mod hosts;
mod killed;
mod left;
mod names;
mod options;
mod passed;
mod programs;
mod said;

use std::fs;
use std::path::{Path, PathBuf};

use testkit::leash::Answer;
use testkit::scene::Scene;
use testkit::user::Who;

/// A home directory with configurations in it.
struct Home {
    scene: Scene,
}

impl Home {
    fn of(who: Who) -> Result<Home, String> {
        Ok(Home { scene: Scene::set(who)? })
    }

    /// A home for the user that runs the tests, which is always possible.
    fn new() -> Home {
        Home::of(Who::me()).expect("the user that runs the tests can")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.scene.dir().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        let below = |dir: &&Path| dir.starts_with(self.scene.dir()) && *dir != self.scene.dir();
        fs::create_dir_all(path.parent().expect("it has a parent")).expect("a directory");
        fs::write(&path, text).expect("a file");
        path.ancestors().take_while(below).for_each(|path| self.scene.user().own(path).expect("it is given away"));
    }

    #[track_caller]
    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn leash(&self, words: &[&str]) -> Answer {
        self.scene.answer(words)
    }

    /// Runs a command that must succeed.
    #[track_caller]
    fn well(&self, words: &[&str]) -> Answer {
        let answer = self.leash(words);
        assert_eq!(answer.code, 0, "{words:?}: {answer:?}");
        answer
    }

    /// Adopts everything, with a path of leash that does not depend on the build directory.
    #[track_caller]
    fn adopt(&self, words: &[&str]) -> Answer {
        self.well(&[&["adopt", "--yes", "--leash", "leash"], words].concat())
    }
}
