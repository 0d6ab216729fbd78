// TokenStore: tokenised documents, by position. Behind it lies a file; what is read is checked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace plait {

class TokenStore {
 public:
  virtual ~TokenStore() = default;

  virtual const std::string& path() const = 0;
  virtual int64_t documents() const = 0;
  // Tokens of the store before `document`; documents() is allowed: all tokens.
  virtual int64_t begin(int64_t document) const = 0;
  virtual bool paired() const = 0;  // documents 2p and 2p + 1: chosen and rejected of pair p

  // The tokens [begin, end) into `ids`, and into `learn` 1 where a token is one to be learned.
  // By any number of threads at once. Throws Error when the file is not what it was.
  virtual void read(int64_t begin, int64_t end, int32_t* ids, uint8_t* learn) const = 0;

  virtual std::string content() const = 0;  // a digest of all tokens and documents

  int64_t tokens() const { return begin(documents()); }
  int64_t length(int64_t document) const { return begin(document + 1) - begin(document); }
  int64_t document_at(int64_t token) const;  // that holds the token
};

// Throws Error naming `source`, document and position of the first id outside [0, vocabulary).
// `progress`: tokens done, tokens in all. Returns a digest of the ids.
std::string check_ids(const TokenStore& store, const std::string& source, int64_t vocabulary,
                      const std::function<void(int64_t, int64_t)>& progress);

}  // namespace plait
