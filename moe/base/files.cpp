#include "moe/base/files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <streambuf>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include <zlib.h>

#include "moe/base/check.h"
#include "moe/base/units.h"

namespace moe {
namespace {

std::atomic<int64_t> max_input{kDefaultMaxInputBytes};

constexpr int kMaxBlanks = 1 << 20;  // most blanks skipped at a file's start

using File = std::unique_ptr<gzFile_s, int (*)(gzFile)>;

// Returns null if there is no file to read. Throws std::bad_alloc.
File opened(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) return {nullptr, gzclose};
  errno = 0;
  File file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr && (errno == 0 || errno == ENOMEM)) throw std::bad_alloc();
  return file;
}

std::string hexadecimal(uLong crc) { return fmt::format("{:08x}", crc); }

const Bytef* bytes_of(std::string_view text) { return reinterpret_cast<const Bytef*>(text.data()); }

}  // namespace

void set_max_input_bytes(int64_t bytes) { max_input = bytes; }

std::string text_of_file(const std::string& path, std::string_view expected) {
  constexpr unsigned kPiece = 1 << 20;
  const File file = opened(path);
  require<BadInput>(file != nullptr, "{}: found no readable file, expected {}", path, expected);
  gzbuffer(file.get(), kPiece);
  std::string text;
  for (int read = 1; read > 0;) {
    const size_t before = text.size();
    text.resize(before + kPiece);
    read = gzread(file.get(), text.data() + before, kPiece);
    text.resize(before + static_cast<size_t>(std::max(0, read)));
    const int64_t most = max_input;
    require<InputTooLarge>(std::cmp_less_equal(text.size(), most),
                           "{}: found more than {} ({} bytes), unpacked, expected {} of at most that", path,
                           human_bytes(static_cast<double>(most)), most, expected);
  }
  int status = Z_OK;
  const std::string why = gzerror(file.get(), &status);
  if (status == Z_MEM_ERROR) throw std::bad_alloc();
  require<BadInput>(status == Z_OK, "{}: found a file that gzip cannot unpack ({}), expected {}", path, why, expected);
  return text;
}

std::string crc_of(std::string_view text) { return hexadecimal(::crc32_z(0, bytes_of(text), text.size())); }

std::optional<std::string> file_crc(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  std::ifstream in(path, std::ios::binary);
  std::vector<char> block(1 << 20);
  uLong crc = 0;
  while (in.read(block.data(), static_cast<std::streamsize>(block.size())) || in.gcount() > 0) {
    const std::string_view read(block.data(), static_cast<size_t>(in.gcount()));
    crc = ::crc32_z(crc, bytes_of(read), read.size());
  }
  return in.eof() ? std::optional(hexadecimal(crc)) : std::nullopt;
}

char first_letter(const std::string& path) {
  const File file = opened(path);
  int letter = file == nullptr ? -1 : gzgetc(file.get());
  for (int blanks = 0; letter == ' ' || (letter >= '\t' && letter <= '\r'); letter = gzgetc(file.get()))
    if (++blanks > kMaxBlanks) return '\0';
  return letter < 0 ? '\0' : static_cast<char>(letter);
}

std::string without_gz_suffix(const std::string& path) {
  return path.ends_with(".gz") ? path.substr(0, path.size() - 3) : path;
}

}  // namespace moe

namespace fs = std::filesystem;

namespace moe {

void require_other_file(const std::string& out, const std::vector<std::string>& inputs) {
  std::error_code missing;
  if (!fs::is_regular_file(out, missing)) return;
  for (const std::string& input : inputs)
    require<BadInput>(!fs::equivalent(out, input, missing),
                      "{}: found a file to write that is read too, expected another", out);
}

void require_kind(const std::string& out, std::string_view beginning, std::string_view kind) {
  const std::string found = beginning_of(out, beginning.size());
  require<BadInput>(found.empty() || found == beginning,
                    "{}: found a file that is no {}, expected a new one, or a {} to replace", out, kind, kind);
}

std::string beginning_of(const std::string& path, size_t bytes) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::string found(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(found.data(), static_cast<std::streamsize>(bytes));
  found.resize(file.gcount());
  return found;
}

void make_folders_above(const std::string& file) {
  const fs::path folder = fs::path(file).parent_path();
  if (folder.empty()) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error == std::errc::permission_denied || error == std::errc::read_only_file_system)
    throw Unwritable(fmt::format("{}: cannot be made ({}), expected a folder for {}", folder.string(), error.message(),
                                 fs::path(file).filename().string()));
}

}  // namespace moe

namespace fs = std::filesystem;

namespace moe {
namespace {

constexpr int kMaxLinks = 40;  // the limit of Linux
constexpr size_t kBufferBytes = 1 << 16;

/// The error number of a failed system call, until it becomes a message.
struct SystemError {
  int error;
};

/// Writes to a descriptor as a stream and closes it; unlike a file stream it keeps the error of a failed write.
class Descriptor final : public std::streambuf {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor), buffer_(kBufferBytes) {
    if (descriptor < 0) throw SystemError{errno};
    setp(buffer_.data(), buffer_.data() + buffer_.size());
  }
  ~Descriptor() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int number() const { return descriptor_; }

  /// Throws the error of the first failed write, or of the close.
  void finish() {
    sync();
    if (::close(std::exchange(descriptor_, -1)) != 0 && error_ == 0) error_ = errno;
    if (error_ != 0) throw SystemError{error_};
  }

 protected:
  int_type overflow(int_type c) override {
    if (sync() != 0) return traits_type::eof();
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    *pptr() = traits_type::to_char_type(c);
    pbump(1);
    return c;
  }

  int sync() override {
    for (const char* at = pbase(); at < pptr() && error_ == 0;) {
      const ssize_t written = ::write(descriptor_, at, static_cast<size_t>(pptr() - at));
      if (written > 0)
        at += written;
      else if (written < 0 && errno != EINTR)
        error_ = errno;
    }
    setp(buffer_.data(), buffer_.data() + buffer_.size());
    return error_ == 0 ? 0 : -1;
  }

 private:
  int descriptor_;
  int error_ = 0;
  std::vector<char> buffer_;
};

void fill(Descriptor& file, const std::function<void(std::ostream&)>& write) {
  std::ostream out(&file);
  write(out);
  file.finish();
}

/// The path at the end of a chain of links, whether or not it exists, and our own descriptor if it names one.
struct Target {
  fs::path path;
  std::optional<int> own_descriptor;
};

Target target_of(fs::path path) {
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(path, error)); ++links) {
    if (links == kMaxLinks) throw SystemError{ELOOP};
    const fs::path folder = fs::canonical(path.has_parent_path() ? path.parent_path() : ".", error);
    if (folder == fs::path("/proc") / std::to_string(::getpid()) / "fd") return {path, std::stoi(path.filename())};
    path = folder / fs::read_symlink(path, error);  // an absolute link replaces `folder`
    if (error) throw SystemError{error.value()};
  }
  return {path, std::nullopt};
}

/// Makes a new file beside `target`, with the rights of any new file, and removes it unless it is kept.
class Temporary {
 public:
  explicit Temporary(const fs::path& target) {
    for (int n = 0;; ++n) {
      path_ = target.parent_path() / fmt::format(".moetune-{}-{}", ::getpid(), n);
      descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
      if (descriptor_ >= 0) return;
      if (errno != EEXIST) throw SystemError{errno};
    }
  }
  ~Temporary() {
    if (!kept_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  int descriptor() const { return descriptor_; }
  /// Returns false if the folder does not let us replace the file, for example a mounted file or another user's file in
  /// /tmp.
  bool take_place_of(const fs::path& target) {
    kept_ = ::rename(path_.c_str(), target.c_str()) == 0;
    if (!kept_ && errno != EBUSY && errno != EPERM) throw SystemError{errno};
    return kept_;
  }

 private:
  fs::path path_;
  int descriptor_ = -1;
  bool kept_ = false;
};

void write_directly(int descriptor, const std::function<void(std::ostream&)>& write) {
  Descriptor file(descriptor);
  fill(file, write);
}

void write_over(const fs::path& target, const std::function<void(std::ostream&)>& write) {
  write_directly(::open(target.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC), write);
}

void replace(const fs::path& target, const struct stat* old, const std::function<void(std::ostream&)>& write) {
  Temporary temporary(target);
  Descriptor file(temporary.descriptor());
  if (old != nullptr) {
    // Keeps the old file's owner if we may; sets the rights last, because a new owner clears some of them.
    if (::fchown(file.number(), old->st_uid, old->st_gid) != 0 && errno != EPERM) throw SystemError{errno};
    if (::fchmod(file.number(), old->st_mode & 07777) != 0) throw SystemError{errno};
  }
  fill(file, write);
  if (!temporary.take_place_of(target)) write_over(target, write);
}

bool takes_new_files(const fs::path& folder) {
  return ::faccessat(AT_FDCWD, folder.empty() ? "." : folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0;
}

// The start of records, which are never replaced: measuring them took time, and no copy exists.
constexpr std::string_view kRecordsBegin = "{\"kind\":\"run\"";

void write_target(const Target& target, const std::function<void(std::ostream&)>& write) {
  const fs::path& path = target.path;
  if (target.own_descriptor) return write_directly(::fcntl(*target.own_descriptor, F_DUPFD_CLOEXEC, 0), write);
  struct stat old {};
  if (::stat(path.c_str(), &old) != 0) {
    if (errno != ENOENT || !path.has_filename()) throw SystemError{errno};
    return replace(path, nullptr, write);
  }
  if (S_ISDIR(old.st_mode)) throw SystemError{EISDIR};
  if (!S_ISREG(old.st_mode)) return write_directly(::open(path.c_str(), O_WRONLY | O_CLOEXEC), write);
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) throw SystemError{errno};
  if (!takes_new_files(path.parent_path())) return write_over(path, write);
  replace(path, &old, write);
}

// Throws the errors of write_target that can be found before it writes.
void check_target(const Target& target) {
  const fs::path& path = target.path;
  if (target.own_descriptor) return;
  struct stat old {};
  if (::stat(path.c_str(), &old) == 0) {
    if (S_ISDIR(old.st_mode)) throw SystemError{EISDIR};
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) throw SystemError{errno};
  } else {
    if (errno != ENOENT || !path.has_filename()) throw SystemError{errno};
    if (!takes_new_files(path.parent_path())) throw SystemError{errno};
  }
}

void make_folder(const OutTarget& target) {
  std::error_code error;
  fs::create_directories(target.path, error);
  require<BadInput>(!error, "{}: cannot make {}: {}", target.flag, target.path, error.message());
  require<BadInput>(takes_new_files(target.path), "{}: cannot write into {}: {}", target.flag, target.path,
                    std::strerror(errno));
}

}  // namespace

void require_targets(std::span<const OutTarget> targets) {
  for (const OutTarget& target : targets) {
    if (target.is_folder) {
      make_folder(target);
      continue;
    }
    try {
      check_target(target_of(target.path));
    } catch (const SystemError& failed) {
      bad_input("{}: cannot be written ({}), expected a file for {}", target.path, std::strerror(failed.error),
                target.flag);
    }
  }
}

void require_distinct(std::span<const OutTarget> targets) {
  std::map<fs::path, std::string_view> flags;
  for (const OutTarget& target : targets) {
    std::error_code error;
    const fs::path path = fs::weakly_canonical(target.path, error);
    if (error || (fs::exists(path, error) && !fs::is_regular_file(path, error))) continue;
    const auto [other, added] = flags.try_emplace(path, target.flag);
    require<BadInput>(added, "{}: found {}, which {} writes too, expected another file", target.flag, target.path,
                      other->second);
  }
}

void write_whole_file(const std::string& path, const std::string& what,
                      const std::function<void(std::ostream&)>& write) {
  const bool records = beginning_of(path, kRecordsBegin.size()) == kRecordsBegin;
  require<BadInput>(!records, "{}: found records, expected another name for {}", path, what);
  try {
    write_target(target_of(path), write);
  } catch (const SystemError& failed) {
    bad_input("{}: cannot be written ({}), expected {}", path, std::strerror(failed.error), what);
  }
}

}  // namespace moe
