//! stub
use crate::tree::Places;
#[derive(Debug, thiserror::Error)]
/// stub
pub enum BookError {}
/// stub
pub struct Book;
impl Book {
    /// stub
    pub fn create(_places: &Places, _command: &str) -> Result<Book, BookError> {
        Ok(Book)
    }
    /// stub
    pub fn run(&self) -> &str {
        ""
    }
    /// stub
    pub fn close(&self) {}
}
