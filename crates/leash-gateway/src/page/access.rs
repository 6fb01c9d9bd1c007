//! The credentials of the page: a link that works once, and the cookie that it is exchanged for. Pure: time is an
//! argument, and so are new secrets.

use std::collections::VecDeque;

use hyper::HeaderMap;
use hyper::header::COOKIE;

use crate::admission::equal;
use leash_model::clock::Moment;
use leash_model::limits;

/// The open links and the valid cookies, both the oldest first. Over their limits the oldest is forgotten, so that no
/// caller can lock the user out.
#[derive(Debug, Default)]
pub(super) struct PageAccess {
    links: VecDeque<Credential>,
    cookies: VecDeque<Credential>,
}

#[derive(Debug)]
struct Credential {
    secret: String,
    /// The time at which it stops working.
    until: Moment,
}

impl PageAccess {
    /// Adds a link with this secret.
    pub(super) fn add_link(&mut self, secret: String, now: Moment) {
        self.forget_old(now);
        add(&mut self.links, secret, now + limits::PAGE_LINK, limits::PAGE_LINKS);
    }

    /// Exchanges the secret of a link for a cookie with a new secret. Returns false if the link was used, is too old or
    /// never existed.
    pub(super) fn exchange(&mut self, secret: &str, new: String, now: Moment) -> bool {
        self.forget_old(now);
        let Some(at) = find(&self.links, secret) else { return false };
        self.links.remove(at);
        add(&mut self.cookies, new, now + limits::PAGE_COOKIE, limits::PAGE_COOKIES);
        true
    }

    /// True if the secret is that of a valid cookie, which then stays valid for longer.
    pub(super) fn admit(&mut self, secret: &str, now: Moment) -> bool {
        self.forget_old(now);
        let Some(cookie) = find(&self.cookies, secret).and_then(|at| self.cookies.get_mut(at)) else { return false };
        cookie.until = now + limits::PAGE_COOKIE;
        true
    }

    fn forget_old(&mut self, now: Moment) {
        self.links.retain(|link| now < link.until);
        self.cookies.retain(|cookie| now < cookie.until);
    }
}

fn add(all: &mut VecDeque<Credential>, secret: String, until: Moment, most: usize) {
    while all.len() >= most {
        all.pop_front();
    }
    all.push_back(Credential { secret, until });
}

/// Compares with all of them, each in constant time.
fn find(all: &VecDeque<Credential>, secret: &str) -> Option<usize> {
    all.iter().position(|known| equal(known.secret.as_bytes(), secret.as_bytes()))
}

/// The name of the cookie. Browsers send cookies to every port of a host, so each gateway has a name of its own.
pub(super) fn cookie_name(port: u16) -> String {
    format!("leash-page-{port}")
}

/// The value of a cookie in a request.
pub(super) fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.into_iter().find(|(found, _)| *found == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn link_works_once() {
        let (mut access, now) = (PageAccess::default(), Moment::now());
        access.add_link("link".to_owned(), now);
        assert!(!access.exchange("guess", "cookie".to_owned(), now));
        assert!(!access.admit("cookie", now) && !access.admit("link", now), "a link is no cookie");
        assert!(access.exchange("link", "cookie".to_owned(), now));
        assert!(!access.exchange("link", "second".to_owned(), now));
        assert!(access.admit("cookie", now));
        assert!(!access.admit("second", now) && !access.admit("", now));
    }

    #[test]
    fn link_and_cookie_expire() {
        let (mut access, now) = (PageAccess::default(), Moment::now());
        access.add_link("late".to_owned(), now);
        assert!(!access.exchange("late", "cookie".to_owned(), now + limits::PAGE_LINK));
        access.add_link("link".to_owned(), now);
        assert!(access.exchange("link", "cookie".to_owned(), now + (limits::PAGE_LINK - SECOND)));
        let used = now + limits::PAGE_COOKIE;
        assert!(access.admit("cookie", used), "from the exchange on");
        assert!(access.admit("cookie", used + (limits::PAGE_COOKIE - SECOND)), "each use makes it valid for longer");
        assert!(!access.admit("cookie", used + limits::PAGE_COOKIE * 2));
    }

    #[test]
    fn oldest_is_forgotten_over_the_limit() {
        let (mut access, now) = (PageAccess::default(), Moment::now());
        for number in 0..=limits::PAGE_LINKS {
            access.add_link(format!("link {number}"), now);
        }
        assert_eq!(access.links.len(), limits::PAGE_LINKS);
        assert!(!access.exchange("link 0", "cookie".to_owned(), now));
        assert!(access.exchange("link 1", "cookie 0".to_owned(), now));
        for number in 1..=limits::PAGE_COOKIES {
            access.add_link("link".to_owned(), now);
            assert!(access.exchange("link", format!("cookie {number}"), now));
        }
        assert_eq!(access.cookies.len(), limits::PAGE_COOKIES);
        assert!(!access.admit("cookie 0", now) && access.admit("cookie 1", now));
    }

    #[test]
    fn cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        let value = "a=b; leash-page-5327=right; leash-page-53=wrong; xleash-page-5327=wrong";
        headers.append(COOKIE, value.parse().expect("a header"));
        assert_eq!(cookie(&headers, &cookie_name(5327)), Some("right"));
        assert_eq!(cookie(&headers, &cookie_name(5328)), None);
        assert_eq!(cookie(&HeaderMap::new(), &cookie_name(5327)), None);
    }
}
