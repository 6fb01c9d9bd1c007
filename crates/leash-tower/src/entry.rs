//! One guarded session as it runs: the driver of [`leash_model::client_session`].

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use hyper::StatusCode;
use tokio::sync::watch;

use super::registry::{Registry, SessionRefusal};
use super::release::{DeleteOutcome, Ended, Release};
use super::request_template::RequestTemplate;
use leash_model::client_session::{Effect, Event, SessionLife};
use leash_model::clock::{self, Moment};
use leash_model::receipt::{DeleteHow, Reason};

/// The state that the sessions of a guard share.
pub(super) type Shared = Registry<SessionEntry>;

/// The stage of a session, for tasks that wait for it.
#[derive(Clone, Debug)]
pub(super) enum SessionStage {
    /// It is opening, or live.
    Runs,
    /// Its end has begun.
    Ending(Reason),
    /// It is over; `None` if the service opened no session.
    Over(Option<Ended>),
}

/// One session.
pub(super) struct SessionEntry {
    pub(super) number: u64,
    pub(super) started_ms: u64,
    shared: Weak<Shared>,
    state: Mutex<State>,
    stage: watch::Sender<SessionStage>,
    release: Release,
}

struct State {
    life: SessionLife,
    /// The id that the client presents; `None` until the service has given it.
    token: Option<Arc<str>>,
    template: RequestTemplate,
    /// The time at which the sweeper will check it.
    armed: Option<Moment>,
}

/// The result of an answer to `initialize`.
pub(super) enum OpenResult {
    /// There is a session.
    Live,
    /// It ended before it was opened, for this reason: it must be released.
    Late(Reason),
    /// The service gave the id of an existing session: the request belongs to that one.
    Existing(Arc<SessionEntry>),
}

/// The data of a session for a list.
pub(super) struct SessionSummary {
    pub(super) token: Arc<str>,
    pub(super) in_flight: u32,
    pub(super) deadline: Option<(Moment, Reason)>,
}

impl SessionEntry {
    /// Begins a session, if the limit allows it.
    pub(super) fn admit(
        shared: &Arc<Shared>,
        template: RequestTemplate,
        release: Release,
    ) -> Result<Arc<SessionEntry>, SessionRefusal> {
        let state = State { life: SessionLife::begin(Moment::on_runtime()), token: None, template, armed: None };
        shared.admit(|number| SessionEntry {
            number,
            started_ms: clock::unix_ms(),
            shared: Arc::downgrade(shared),
            state: Mutex::new(state),
            stage: watch::Sender::new(SessionStage::Runs),
            release,
        })
    }

    // No code panics while it holds the lock. Even after a panic the state is consistent: every change is complete
    // before the next call to other code.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a use of the session until the guard is dropped; `None` if the session is ending.
    pub(super) fn begin(self: &Arc<Self>, listens: bool) -> Option<SessionUse> {
        let (began, ended) = match listens {
            true => (Event::ListenBegan, Event::ListenEnded),
            false => (Event::RequestBegan, Event::RequestEnded),
        };
        if !self.state().life.usable() {
            return None;
        }
        self.apply(began);
        // The use is counted first, then the state is checked again: a session that ended in between ends without this
        // request.
        let usable = self.state().life.usable();
        usable.then(|| SessionUse { entry: Arc::clone(self), end: Some(ended) })
    }

    /// Applies an event and performs its effect.
    pub(super) fn apply(self: &Arc<Self>, event: Event) {
        let Some(shared) = self.shared.upgrade() else { return };
        let effect = {
            let mut state = self.state();
            let effect = state.life.apply(event, Moment::on_runtime(), &shared.options.times);
            self.arm(&shared, &mut state);
            effect
        };
        if let Effect::End(reason) = effect {
            self.begin_end(&shared, reason);
        }
    }

    /// Lets the sweeper check it at its deadline. As with the gateway's timers, the time is only ever moved to an
    /// earlier one.
    fn arm(self: &Arc<Self>, shared: &Shared, state: &mut State) {
        let Some((at, _)) = state.life.deadline(&shared.options.times) else { return };
        if state.armed.is_none_or(|armed| at < armed) {
            shared.arm(self.number, self, state.armed.replace(at), at);
        }
    }

    /// Checks its deadlines; called by the sweeper.
    pub(super) fn fire(self: &Arc<Self>) {
        self.state().armed = None;
        self.apply(Event::Tick);
    }

    /// Begins the end: its token answers 404 from now on.
    fn begin_end(self: &Arc<Self>, shared: &Shared, reason: Reason) {
        let token = self.state().token.clone();
        self.stage.send_replace(SessionStage::Ending(reason.clone()));
        // Without a token there is nothing to release yet: the answer to `initialize` will release it.
        if let Some(token) = token {
            shared.retire(self, &token, reason);
        }
    }

    /// Begins its end; does nothing if it has begun already.
    pub(super) fn end(self: &Arc<Self>, reason: Reason) {
        self.apply(Event::End(reason));
    }

    /// Sets the id that the service gave the session.
    pub(super) fn opened(self: &Arc<Self>, shared: &Shared, token: &str) -> OpenResult {
        let now = Moment::on_runtime();
        let mut state = self.state();
        let token: Arc<str> = token.into();
        state.token = Some(Arc::clone(&token));
        match state.life.apply(Event::Held, now, &shared.options.times) {
            Effect::Nothing => {}
            Effect::End(reason) | Effect::Release(reason) => {
                drop(state);
                self.stage.send_replace(SessionStage::Ending(reason.clone()));
                return OpenResult::Late(reason);
            }
        }
        if let Some(existing) = shared.name(self, token) {
            return OpenResult::Existing(existing);
        }
        state.life.apply(Event::Opened, now, &shared.options.times);
        self.arm(shared, &mut state);
        OpenResult::Live
    }

    /// Removes an entry for which the service opened no session.
    pub(super) fn discard(self: &Arc<Self>, shared: &Shared) {
        self.state().life.apply(Event::End(Reason::NotInitialized), Moment::on_runtime(), &shared.options.times);
        self.over(shared, None);
    }

    /// Keeps the headers of a request that the service accepted from the session's client.
    pub(super) fn refresh(&self, template: RequestTemplate) {
        let mut state = self.state();
        state.template = template.after(&state.template);
    }

    /// True if a request went to the path of the session.
    pub(super) fn is_for(&self, template: &RequestTemplate) -> bool {
        self.state().template.is_for(template)
    }

    /// Ends the session because the client's own DELETE has deleted it: the guard sends none.
    pub(super) fn deleted(self: &Arc<Self>, how: DeleteHow, status: StatusCode) {
        let Some(shared) = self.shared.upgrade() else { return };
        let token = {
            let mut state = self.state();
            let effect =
                state.life.apply(Event::End(Reason::ClientDeleted), Moment::on_runtime(), &shared.options.times);
            if !matches!(effect, Effect::End(_)) {
                // It is ending already, and that end reports itself.
                return;
            }
            state.token.clone()
        };
        if let Some(token) = token {
            shared.forget_token(&token);
        }
        let deleted = DeleteOutcome { how, status: Some(status), tries: 0 };
        self.finish(&shared, Reason::ClientDeleted, deleted, Moment::on_runtime());
    }

    /// Deletes it in the service; returns when the result is known.
    pub(super) async fn delete(self: Arc<Self>, shared: Arc<Shared>, reason: Reason) {
        let (template, token) = {
            let state = self.state();
            (state.template.clone(), state.token.as_deref().unwrap_or_default().to_owned())
        };
        let mut settling =
            Settling { entry: Arc::clone(&self), shared, reason, began: Moment::on_runtime(), deleted: None };
        settling.deleted = Some((self.release)(template, token).await);
    }

    fn finish(self: &Arc<Self>, shared: &Shared, reason: Reason, deleted: DeleteOutcome, began: Moment) {
        let token = self.state().token.as_deref().unwrap_or_default().to_owned();
        let ended = Ended {
            session: token,
            reason,
            how: deleted.how,
            status: deleted.status.map(|status| status.as_u16()),
            tries: deleted.tries,
            took: Moment::on_runtime().since(began),
        };
        if let Some(tell) = &shared.options.on_end {
            tell(&ended);
        }
        self.over(shared, Some(ended));
    }

    fn over(self: &Arc<Self>, shared: &Shared, ended: Option<Ended>) {
        let armed = {
            let mut state = self.state();
            state.life.apply(Event::Released, Moment::on_runtime(), &shared.options.times);
            state.armed.take()
        };
        shared.remove(self.number, armed);
        self.stage.send_replace(SessionStage::Over(ended));
    }

    /// Returns when its end has begun.
    pub(super) async fn ending(&self) -> Option<Reason> {
        match self.wait(|stage| !matches!(stage, SessionStage::Runs)).await {
            SessionStage::Ending(reason) => Some(reason),
            SessionStage::Over(ended) => ended.map(|ended| ended.reason),
            SessionStage::Runs => None,
        }
    }

    /// Returns its end when it is over.
    pub(super) async fn ended(&self) -> Option<Ended> {
        match self.wait(|stage| matches!(stage, SessionStage::Over(_))).await {
            SessionStage::Over(ended) => ended,
            SessionStage::Runs | SessionStage::Ending(_) => None,
        }
    }

    async fn wait(&self, wanted: impl FnMut(&SessionStage) -> bool) -> SessionStage {
        let mut stage = self.stage.subscribe();
        // This entry holds the sender, so it is not dropped while we wait.
        let found = stage.wait_for(wanted).await.map(|stage| stage.clone());
        found.unwrap_or(SessionStage::Over(None))
    }

    /// Its data for a list; `None` while it has no id, and once it is ending.
    pub(super) fn summary(&self, shared: &Shared) -> Option<SessionSummary> {
        let state = self.state();
        let token = state.token.clone().filter(|_| state.life.usable())?;
        Some(SessionSummary {
            token,
            in_flight: state.life.in_flight(),
            deadline: state.life.deadline(&shared.options.times),
        })
    }
}

/// A session that is being deleted: when this is dropped, for any reason, the session is over.
struct Settling {
    entry: Arc<SessionEntry>,
    shared: Arc<Shared>,
    reason: Reason,
    began: Moment,
    deleted: Option<DeleteOutcome>,
}

impl Drop for Settling {
    fn drop(&mut self) {
        // Without a result, the service panicked or the runtime is gone: it is not known whether the session is
        // deleted.
        let unknown = DeleteOutcome { how: DeleteHow::Unreachable, status: None, tries: 1 };
        let deleted = self.deleted.unwrap_or(unknown);
        self.entry.finish(&self.shared, self.reason.clone(), deleted, self.began);
    }
}

/// A use of a session; dropping it ends the use.
pub(super) struct SessionUse {
    entry: Arc<SessionEntry>,
    end: Option<Event>,
}

impl std::fmt::Debug for SessionUse {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Flight").field("session", &self.entry.number).finish()
    }
}

impl Drop for SessionUse {
    fn drop(&mut self) {
        if let Some(event) = self.end.take() {
            self.entry.apply(event);
        }
    }
}
