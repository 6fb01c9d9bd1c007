//! stub: replaced by the guard's author
