//! The plan of an episode: a pure function of a seed and a number, which can be written as text and read back.

use std::fmt;
use std::str::FromStr;

use super::action::{Action, Blow, Disk, Driver, Forgery, Origin, Part, Route, Scarce, Server, Start, number, worded};
use super::random::Random;
use crate::ground::Containment;
use crate::user::Who;

worded! {
    /// The containment of the trees.
    Hold {
        /// A PID namespace.
        Sealed = "sealed",
        /// A scope of the user manager.
        Unit = "unit",
        /// A cgroup.
        Leaf = "leaf",
        /// Descent (parent and child).
        Reaper = "reaper",
        /// The process group: it promises little, and is checked for that.
        Group = "group",
    }
}

impl Hold {
    /// The ground that it needs.
    pub fn ground(self) -> Containment {
        match self {
            Self::Sealed => Containment::Sealed,
            Self::Unit => Containment::Unit,
            Self::Leaf => Containment::Leaf,
            Self::Reaper | Self::Group => Containment::Reaper,
        }
    }
}

/// An episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// The number of the episode in the seed.
    pub episode: u64,
    /// The containment of the trees.
    pub hold: Hold,
    /// The user that runs everything.
    pub who: Who,
    /// The grace of `leash serve`, in milliseconds.
    pub grace: u64,
    /// The actions.
    pub actions: Vec<Action>,
}

/// The features that this machine offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// True if the SDKs are installed.
    pub sdks: bool,
    /// True if a disk can be made for the ledger.
    pub disk: bool,
    /// True if every user can make a PID namespace.
    pub namespaces: bool,
}

/// From zero to longer than most of an episode.
const GRACES: [u64; 4] = [0, 50, 300, 1000];

impl Plan {
    /// Draws an episode.
    pub fn draw(seed: u64, episode: u64, offer: &Offer) -> Self {
        let mut random = Random::of(seed, episode);
        // The containments take turns, so that even a short run plays each about equally often. Missing ones take their
        // turn too, so that the plan of an episode does not depend on what the machine lacks.
        let turn = Random::of(seed, u64::MAX).bits().wrapping_add(episode) as usize;
        let (hold, who) = (Hold::ALL[turn / 2 % Hold::ALL.len()], [Who::Root, Who::User][turn % 2]);
        let grace = random.pick(&GRACES);
        let mut draft = Draft { random, hold, who, offer, started: Vec::new() };
        let length = draft.random.between(8, 20);
        let actions = (0..length).map(|at| draft.next(at)).collect();
        Self { seed, episode, hold, who, grace, actions }
    }

    /// The same plan with other actions.
    pub fn with(&self, actions: Vec<Action>) -> Self {
        Self { actions, ..self.clone() }
    }

    /// True if an action uses `leash serve` or acts on it.
    pub fn needs_serve(&self) -> bool {
        self.actions.iter().any(|action| match action {
            Action::Start(start) => !matches!(start.route, Route::Run | Route::Connect),
            Action::RestartServe(_) | Action::Visit(..) => true,
            _ => false,
        })
    }

    /// True if an action starts this server.
    pub fn needs_server(&self, wanted: Server) -> bool {
        self.actions.iter().any(|action| match action {
            Action::Start(Start { server, .. }) | Action::Visit(_, server, ..) => *server == wanted,
            _ => false,
        })
    }

    /// True if an action changes the disk.
    pub fn needs_disk(&self) -> bool {
        self.actions.iter().any(|action| matches!(action, Action::Disk(_)))
    }
}

struct Draft<'a> {
    random: Random,
    hold: Hold,
    who: Who,
    offer: &'a Offer,
    started: Vec<Start>,
}

#[derive(Clone, Copy)]
enum Kind {
    Start,
    Call,
    Abandon,
    Close,
    Delete,
    End,
    Strike,
    Squeeze,
    Disk,
    Cut,
    Origin,
    Down,
    Up,
    Serve,
    Grace,
    Pause,
    Forge,
    Starve,
    Trace,
    Force,
    Visit,
}

impl Draft<'_> {
    fn next(&mut self, at: u64) -> Action {
        let kind = match at {
            // The first actions start actors: the others need one.
            0 | 1 => Kind::Start,
            _ => self.random.weigh(&[
                (22, Kind::Start),
                (8, Kind::Call),
                (4, Kind::Abandon),
                (6, Kind::Close),
                (4, Kind::Delete),
                (4, Kind::End),
                (30, Kind::Strike),
                (6, Kind::Squeeze),
                (if self.has_disk() { 8 } else { 0 }, Kind::Disk),
                (4, Kind::Cut),
                (3, Kind::Origin),
                // Rare, because leash retries for long to end a session at an unreachable server.
                (1, Kind::Down),
                (1, Kind::Up),
                (4, Kind::Serve),
                (2, Kind::Grace),
                (8, Kind::Pause),
                (5, Kind::Forge),
                (3, Kind::Starve),
                (3, Kind::Trace),
                (2, Kind::Force),
                (3, Kind::Visit),
            ]),
        };
        match kind {
            Kind::Start => Action::Start(self.start()),
            Kind::Call => Action::Call(self.somebody()),
            Kind::Abandon => Action::Abandon(self.somebody()),
            Kind::Close => Action::Close(self.somebody()),
            Kind::Delete => Action::Delete(self.somebody()),
            Kind::End => Action::End(self.somebody()),
            Kind::Strike => self.strike(),
            Kind::Squeeze => self.squeeze(),
            Kind::Disk => Action::Disk(self.random.pick(Disk::ALL)),
            Kind::Cut => Action::Cut(self.random.pick(Origin::ALL)),
            Kind::Origin => Action::RestartOrigin(self.random.pick(Origin::ALL)),
            Kind::Down => Action::Down(self.random.pick(Origin::ALL)),
            Kind::Up => Action::Up(self.random.pick(Origin::ALL)),
            Kind::Serve => Action::RestartServe(self.random.pick(&[Blow::Term, Blow::Int, Blow::Kill])),
            Kind::Grace => Action::Grace(self.random.pick(&GRACES)),
            Kind::Pause => Action::Pause(self.random.pick(&[1, 5, 20, 100, 400])),
            Kind::Forge => self.forge(),
            Kind::Starve => self.starve(),
            Kind::Trace => Action::Trace(self.somebody()),
            Kind::Force => Action::Force(self.somebody()),
            Kind::Visit => self.visit(),
        }
    }

    /// False for `unit`: the manager runs in its own mount namespace, where a new disk is not visible.
    fn has_disk(&self) -> bool {
        self.offer.disk && self.hold != Hold::Unit
    }

    /// True if the SDKs can be used: only the user who runs the tests can be sure to read their directory.
    fn has_sdks(&self) -> bool {
        self.offer.sdks && self.who == Who::me()
    }

    fn start(&mut self) -> Start {
        let random = &mut self.random;
        let route = random.weigh(&[
            (10, Route::Run),
            (4, Route::Connect),
            (2, Route::ConnectServe),
            (4, Route::ServeStdio),
            (4, Route::ServeHttp),
        ]);
        let zoo = zoo(self.hold, self.offer);
        let mut server = random.pick(&zoo);
        let mut driver = random.pick(&[Driver::Pipe, Driver::Socketpair]);
        let scarcity = random.weigh(&[(8, Scarce::Nothing), (1, Scarce::Descriptors), (1, Scarce::Processes)]);
        let most = match scarcity {
            Scarce::Nothing => 0,
            Scarce::Descriptors => random.between(8, 40),
            Scarce::Processes => random.between(2, 40),
        };
        let (origin, grace, hurry) =
            (random.weigh(&[(3, Origin::Honest), (1, Origin::Keeper)]), random.pick(&GRACES), random.happens(20));
        if self.has_sdks() && self.random.happens(30) {
            let sdks = [Driver::Python1, Driver::Python2, Driver::TypeScript1, Driver::TypeScript2];
            driver = self.random.pick(&sdks);
        }
        if self.has_sdks() && self.random.happens(25) {
            server = match self.hold {
                Hold::Group => Server::Fixture,
                _ => self.random.pick(&[Server::Everything, Server::Python, Server::Fixture]),
            };
        }
        // A process in a foreign namespace excuses a receipt with the fate "left", so leash must have time to see it.
        let hurry = hurry && server != Server::Foreign;
        // The SDKs need more resources than the lowest limits here, and do not report it if they lack them.
        let is_direct = matches!(route, Route::Run | Route::Connect) && server != Server::Foreign;
        let scarce = match driver.is_raw() && server.is_of_the_zoo() && is_direct {
            true => (scarcity, most),
            false => (Scarce::Nothing, 0),
        };
        let start = Start { actor: self.started.len() as u32, driver, route, server, origin, grace, scarce, hurry };
        self.started.push(start.clone());
        start
    }

    /// Half of the forgeries change an actor's own record.
    fn forge(&mut self) -> Action {
        let forgery = match self.random.happens(40) {
            true => self.random.pick(&[Forgery::Over, Forgery::OverKept]),
            false => self.random.pick(Forgery::ALL),
        };
        Action::Forge(self.somebody(), forgery)
    }

    fn starve(&mut self) -> Action {
        let most = self.random.between(6, 13);
        Action::Starve(self.somebody(), self.random.happens(75).then_some(most))
    }

    /// Each client of a stdio server gets its own tree, so there are fewer of them.
    fn visit(&mut self) -> Action {
        let (server, origin) = (self.random.pick(&[Server::Polite, Server::Stubborn]), self.random.pick(Origin::ALL));
        match self.random.happens(70) {
            true => Action::Visit(Route::ServeHttp, server, origin, self.random.between(2, 13)),
            false => Action::Visit(Route::ServeStdio, server, origin, self.random.between(1, 4)),
        }
    }

    fn somebody(&mut self) -> u32 {
        self.random.between(0, self.started.len() as u64) as u32
    }

    fn squeeze(&mut self) -> Action {
        let whom = (self.somebody(), self.random.weigh(&[(4, Part::Leash), (2, Part::Keeper), (1, Part::Leader)]));
        match self.random.happens(60) {
            // From fewer descriptors than every program has open to a few more.
            true => Action::Squeeze(whom, Scarce::Descriptors, self.random.between(3, 30)),
            false => Action::Squeeze(whom, Scarce::Processes, self.random.between(1, 4)),
        }
    }

    fn strike(&mut self) -> Action {
        let blow = self.random.weigh(&[
            (5, Blow::Kill),
            (2, Blow::Term),
            (1, Blow::Int),
            (1, Blow::Hup),
            (2, Blow::Stop),
            (1, Blow::Cont),
        ]);
        let first = self.somebody();
        let parts = match self.random.weigh(&[(6, 1), (2, 2), (1, 3)]) {
            1 => vec![(first, self.random.pick(Part::ALL))],
            // Leash and keeper, which watch each other, at the same moment.
            2 => vec![(first, Part::Leash), (first, Part::Keeper)],
            _ => (0..3).map(|_| (self.somebody(), self.random.pick(Part::ALL))).collect(),
        };
        Action::Strike(blow, parts)
    }
}

/// The servers of the zoo that this machine can start and that the containment promises to end. For `group`: the ones
/// that stay in their group.
fn zoo(hold: Hold, offer: &Offer) -> Vec<Server> {
    let is_promised = |server: Server| hold != Hold::Group || server.stays_in_its_group();
    let is_there = |server: Server| offer.namespaces || server != Server::Foreign;
    let zoo = Server::ALL.iter().copied().filter(|server| server.is_of_the_zoo());
    zoo.filter(|server| is_promised(*server) && is_there(*server)).collect()
}

/// The name of the user that runs everything.
pub(crate) fn name(who: Who) -> &'static str {
    match who {
        Who::Root => "root",
        Who::User => "user",
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = name(self.who);
        writeln!(f, "chaos 1 seed={} episode={} {} {who} grace={}", self.seed, self.episode, self.hold, self.grace)?;
        self.actions.iter().try_for_each(|action| writeln!(f, "{action}"))
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let first: Vec<&str> = lines.next().unwrap_or_default().split_whitespace().collect();
        let ["chaos", "1", seed, episode, hold, who, grace] = first[..] else {
            return Err("a replay begins with `chaos 1 seed=N episode=N CONTAINMENT root|user grace=N`".to_owned());
        };
        let value =
            |word: &str, name: &str| number(word.strip_prefix(name).ok_or_else(|| format!("`{word}` is no {name}N"))?);
        let who = match who {
            "root" => Who::Root,
            "user" => Who::User,
            _ => return Err(format!("`{who}` is neither root nor user")),
        };
        Ok(Self {
            seed: value(seed, "seed=")?,
            episode: value(episode, "episode=")?,
            hold: hold.parse()?,
            who,
            grace: value(grace, "grace=")?,
            actions: lines.map(str::parse).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        Offer { sdks: true, disk: true, namespaces: true }
    }

    #[test]
    fn same_seed_gives_same_episode_and_another_seed_does_not() {
        for episode in 0..200 {
            assert_eq!(Plan::draw(5, episode, &offer()), Plan::draw(5, episode, &offer()));
        }
        assert_ne!(Plan::draw(5, 0, &offer()).actions, Plan::draw(6, 0, &offer()).actions);
    }

    #[test]
    fn plan_can_be_written_and_read_back() {
        for episode in 0..500 {
            let plan = Plan::draw(9, episode, &offer());
            assert_eq!(plan.to_string().parse::<Plan>(), Ok(plan));
        }
    }

    #[test]
    fn invalid_plan_is_refused_with_a_reason() {
        for (text, why) in [
            ("", "begins with"),
            ("chaos 1 seed=x episode=1 leaf root grace=0", "`x` is no number"),
            ("chaos 1 seed=1 episode=1 cage root grace=0", "`cage` is no hold"),
            ("chaos 1 seed=1 episode=1 leaf nobody grace=0", "neither root nor user"),
            ("chaos 1 seed=1 episode=1 leaf root grace=0\ndance 3", "nothing that can happen: `dance 3`"),
            ("chaos 1 seed=1 episode=1 leaf root grace=0\nstrike KILL 3", "`3` is not ACTOR:PART"),
            ("chaos 1 seed=1 episode=1 leaf root grace=0\nforge 0 gold", "`gold` is no forgery"),
            ("chaos 1 seed=1 episode=1 leaf root grace=0\nstarve 0 processes=3", "nothing that can happen"),
        ] {
            let error = text.parse::<Plan>().expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn every_ground_is_drawn() {
        let grounds: Vec<String> =
            (0..10).map(|at| Plan::draw(4, at, &offer())).map(|plan| format!("{} {:?}", plan.hold, plan.who)).collect();
        let different: std::collections::HashSet<&String> = grounds.iter().collect();
        assert_eq!(different.len(), 10, "{grounds:?}");
    }

    /// Checks that every action, server and part in the lists is drawn sooner or later.
    #[test]
    fn every_action_is_drawn_sooner_or_later() {
        let plans: Vec<Plan> = (0..2000).map(|episode| Plan::draw(3, episode, &offer())).collect();
        let lines: Vec<String> = plans.iter().map(Plan::to_string).collect();
        let text = lines.concat();
        let words = [
            Driver::ALL.iter().map(Driver::to_string).collect::<Vec<_>>(),
            Route::ALL.iter().map(Route::to_string).collect(),
            Server::ALL.iter().map(Server::to_string).collect(),
            Origin::ALL.iter().map(Origin::to_string).collect(),
            Scarce::ALL.iter().map(|one| format!("{one}=")).collect(),
            Part::ALL.iter().map(|one| format!(":{one}")).collect(),
            ["leash descriptors", "leash processes", "keeper descriptors"].map(|one| format!(":{one}=")).into(),
            Blow::ALL.iter().map(|one| format!("strike {one}")).collect(),
            Disk::ALL.iter().map(|one| format!("disk {one}")).collect(),
            Hold::ALL.iter().map(Hold::to_string).collect(),
            ["call", "abandon", "close", "delete", "end", "cut", "restart-origin", "restart-serve", "hurry"]
                .map(str::to_owned)
                .into(),
            ["\ngrace", "\npause", "\ndown", "\nup", "\ntrace", "\nforce"].map(str::to_owned).into(),
            Forgery::ALL.iter().map(|one| format!(" {one}\n")).collect(),
            (6..13).map(|most| format!(" descriptors={most}\n")).collect(),
            [" cgroups\n", "visit serve-http", "visit serve-stdio"].map(str::to_owned).into(),
        ];
        for word in words.concat() {
            assert!(text.contains(&word), "never: {word}");
        }
    }

    /// A plan does not ask for features that the machine lacks.
    #[test]
    fn plan_only_uses_features_of_the_machine() {
        let poor = Offer { sdks: false, disk: false, namespaces: false };
        for episode in 0..300 {
            let plan = Plan::draw(3, episode, &poor);
            assert!(!plan.needs_disk());
            for action in plan.actions {
                let Action::Start(start) = action else { continue };
                assert!(start.server.is_of_the_zoo() && start.driver.is_raw() && start.server != Server::Foreign);
            }
        }
    }
}
