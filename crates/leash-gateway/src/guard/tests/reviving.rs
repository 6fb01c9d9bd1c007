//! Tests of `revive`: the server loses its sessions, and the client does not notice.

use super::*;
use leash_upstream::scripted::{run, stream};

fn terms() -> Terms {
    let mut terms = Terms::default();
    terms.policy.revive = true;
    terms
}

fn initializations(upstream: &Scripted) -> usize {
    upstream.seen().iter().filter(|seen| seen.says(r#""initialize""#)).count()
}

#[test]
fn lost_session_is_opened_anew_once_for_all_waiting_requests() {
    run(async {
        for unknown in [404, 400] {
            let (fake, upstream) = Fake::start().await;
            fake.unknown.set(Some(unknown));
            let rig = Rig::with(&upstream.url(), terms()).await;
            let session = rig.open().await;
            assert_ne!(session, "up-1", "the client got leash's own id");
            fake.forget();
            let asked = (0..8).map(|_| rig.post(Some(&session), CALL));
            for told in join_all(asked).await {
                assert_eq!((told.status, told.body.as_str()), (200, CALL));
            }
            assert_eq!(initializations(&upstream), 2);
            let seen = upstream.seen();
            let initialized = seen.iter().filter(|seen| seen.says("notifications/initialized"));
            let initialized: Vec<_> = initialized.map(|seen| seen.header("mcp-session-id").to_owned()).collect();
            assert_eq!(initialized, ["up-1", "up-2"]);
            rig.until(|rig| rig.booked() == ["up-2"]).await;
            // The server loses the session again.
            fake.forget();
            assert_eq!(rig.post(Some(&session), CALL).await.status, 200);
            assert_eq!(rig.delete(Some(&session)).await.status, 200);
            // 404 says that the session is over. A server that responds 400 may still have it, so leash deletes it.
            let expected: &[&str] = if unknown == 404 { &["up-3"] } else { &["up-1", "up-2", "up-3"] };
            rig.until(|rig| rig.receipts().len() == expected.len() && rig.booked().is_empty()).await;
            let mut told = deleted(&upstream);
            told.sort();
            assert_eq!(told, expected);
            assert!(fake.leaked.borrow().is_empty(), "{:?}", fake.leaked);
        }
    });
}

/// A proxy could not find the session for a moment, but the server still has it.
#[test]
fn a_session_that_a_400_hid_is_deleted_when_another_takes_its_place() {
    run(async {
        let (fake, quick) = Fake::start().await;
        let hidden = Rc::new(Cell::new(false));
        let script = (Rc::clone(&fake), Rc::clone(&hidden));
        let upstream = Scripted::start(move |seen| match script.1.take() && seen.says("tools/call") {
            true => reply(json(
                400,
                r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"no valid session ID provided"}}"#,
            )),
            false => script.0.reply(seen),
        })
        .await;
        drop(quick);
        let rig = Rig::with(&upstream.url(), terms()).await;
        let session = rig.open().await;
        hidden.set(true);
        assert_eq!(rig.post(Some(&session), CALL).await.status, 200);
        rig.until(|_| !fake.leaked.borrow().contains("up-1")).await;
        assert_eq!(deleted(&upstream), ["up-1"]);
        rig.until(|rig| rig.booked() == ["up-2"] && rig.receipts().len() == 1).await;
        assert_eq!(rig.ends(), [(Reason::UpstreamForgot, DeleteHow::Deleted)]);
    });
}

#[test]
fn get_request_revives_a_lost_session() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::with(&upstream.url(), terms()).await;
        let session = rig.open().await;
        fake.forget();
        let (sender, body) = stream();
        *fake.stream.borrow_mut() = Some(body);
        let mut answer = rig.get(Some(&session)).await.into_body();
        sender.send("data: 1\n\n".into()).expect("sent");
        assert_eq!(next(&mut answer).await.as_deref(), Some("data: 1\n\n"));
        assert_eq!(initializations(&upstream), 2);
    });
}

#[test]
fn session_that_cannot_be_revived_ends() {
    run(async {
        let (fake, quick) = Fake::start().await;
        let broken = Rc::new(Cell::new(false));
        let script = (Rc::clone(&fake), Rc::clone(&broken));
        let upstream = Scripted::start(move |seen| match script.1.get() && seen.says(r#""initialize""#) {
            true => reply(json(500, "{}")),
            false => script.0.reply(seen),
        })
        .await;
        drop(quick);
        let rig = Rig::with(&upstream.url(), terms()).await;
        let session = rig.open().await;
        fake.forget();
        broken.set(true);
        let told = rig.post(Some(&session), CALL).await;
        assert_eq!((told.status, told.body.as_str()), (404, NOT_FOUND));
        rig.quiet().await;
        assert_eq!(rig.ends(), [(Reason::UpstreamForgot, DeleteHow::Forgotten)]);
        assert!(fake.leaked.borrow().is_empty() && rig.booked().is_empty());
    });
}

#[test]
fn session_that_ends_during_its_revival_leaves_no_session() {
    run(async {
        let (fake, upstream) = Fake::start().await;
        let rig = Rig::with(&upstream.url(), terms()).await;
        let session = rig.open().await;
        fake.forget();
        let answer = CancellationToken::new();
        *fake.hold.borrow_mut() = Some(answer.clone());
        let ending = async {
            upstream.until(|seen| seen.iter().filter(|seen| seen.says(r#""initialize""#)).count() == 2).await;
            assert_eq!(rig.delete(Some(&session)).await.status, 404, "the server has lost the session");
            answer.cancel();
        };
        let (told, ()) = tokio::join!(rig.post(Some(&session), CALL), ending);
        assert_eq!(told.status, 404);
        rig.until(|_| fake.minted.get() == 2 && fake.leaked.borrow().is_empty()).await;
        rig.until(|rig| rig.booked().is_empty() && rig.receipts().len() == 2).await;
        assert_eq!(deleted(&upstream), ["up-1", "up-2"]);
    });
}

/// Runs all futures at the same time and returns their results.
async fn join_all<T: 'static>(all: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut waiting: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    std::future::poll_fn(move |cx| {
        for (one, done) in &mut waiting {
            if done.is_none()
                && let std::task::Poll::Ready(value) = one.as_mut().poll(cx)
            {
                *done = Some(value);
            }
        }
        match waiting.iter().all(|(_, done)| done.is_some()) {
            true => std::task::Poll::Ready(waiting.iter_mut().filter_map(|(_, done)| done.take()).collect()),
            false => std::task::Poll::Pending,
        }
    })
    .await
}
