#pragma once
// The kinds of error, each with its exit code, and the checks that throw them.
#include <compare>
#include <fmt/format.h>
#include <stdexcept>
#include <string>
#include <utility>

namespace moe {

/// Input that can't be used (flag, file, shape): one line that names where, what was found, what was expected. Exit 2.
class BadInput : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Why a layer, shape or schedule can't be planned.
struct Refusal {
  enum class Kind { unsupported, unpriced, too_large, not_in_time };
  Kind kind = Kind::unsupported;
  std::string reason;        // without sizes, so that equal refusals have equal reasons
  std::string subject = {};  // the thing that lacks something, unless the reason names it: "profile testbed-b"
  std::string detail = {};   // sizes of this refusal

  /// Returns "profile testbed-b: no gemm row", "does not fit: needs 31.25 GiB, a rank has 11.00 GiB".
  std::string text() const { return subject.empty() ? brief() : subject + ": " + brief(); }
  /// Returns the text without the subject.
  std::string brief() const { return detail.empty() ? reason : reason + ": " + detail; }

  auto operator<=>(const Refusal&) const = default;
};

/// Input that is valid by itself but has no meaning or no price where it is used; grids mark such rows `unsupported`.
class Unsupported : public BadInput {
 public:
  explicit Unsupported(const std::string& what) : BadInput(what), refusal_{.reason = what} {}
  explicit Unsupported(Refusal refusal) : BadInput(refusal.text()), refusal_(std::move(refusal)) {}

  const Refusal& refusal() const noexcept { return refusal_; }

 private:
  Refusal refusal_;
};

/// Returns the refusal of an Unsupported; for other errors, one whose reason is the whole message.
inline Refusal refusal_of(const BadInput& error) {
  const auto* unsupported = dynamic_cast<const Unsupported*>(&error);
  return unsupported != nullptr ? unsupported->refusal() : Refusal{.reason = error.what()};
}

/// A computed result that disagrees with its reference, or a plan that breaks a rule. Exit 3.
class WrongResult : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A rank that died, hung or disagreed with the others; names rank and task. Exit 4.
class RankFailure : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Throws BadInput with a formatted line.
template <class... Args>
[[noreturn]] void bad_input(fmt::format_string<Args...> text, Args&&... args) {
  throw BadInput(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws Error with a formatted line unless `ok`. The arguments are formatted only on failure.
template <class Error, class... Args>
void require(bool ok, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) [[unlikely]]
    throw Error(fmt::format(text, std::forward<Args>(args)...));
}

/// Throws Error naming both operands unless they are equal.
template <class Error = WrongResult, class A, class B>
void require_equal(const A& found, const B& expected, std::string_view what) {
  if (!(found == expected)) [[unlikely]]
    throw Error(fmt::format("{}: found {}, expected {}", what, found, expected));
}

// The codes with which a process ends.

/// How a process ended. kRegression: something is slower, confirmed. kDoubtful: --strict is set, and a case is
/// ambiguous or the machine has a warning. kDefect: a bug in the program itself. kNoHardware: this machine lacks the
/// hardware that the command needs; CTest shows a skip.
enum ExitCode : int {
  kOk = 0,
  kRegression = 1,
  kBadInput = 2,
  kWrongResult = 3,
  kRankFailure = 4,
  kDoubtful = 5,
  kDefect = 70,
  kNoHardware = 77
};

/// Hardware that is not in this machine, or that this build can't use. Exit 77, which CTest shows as a skip.
class NoHardware : public BadInput {
  using BadInput::BadInput;
};

}  // namespace moe
