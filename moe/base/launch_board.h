#pragma once
// A page of memory that a launcher shares with the processes it starts: rank 0 posts the port of its store there, and
// the launcher posts the failure of a rank that can no longer report it. The page is freed when the last of these
// processes ends, however it ends.
#include <optional>
#include <string>

namespace moe {

class LaunchBoard {
 public:
  /// Makes a new board, on a descriptor that is inherited across exec. Throws BadInput if the system gives none.
  LaunchBoard();
  /// Opens an inherited board. Throws BadInput if the descriptor is not a board. The descriptor stays open, but exec no
  /// longer inherits it.
  explicit LaunchBoard(int descriptor);
  ~LaunchBoard();
  LaunchBoard(const LaunchBoard&) = delete;
  LaunchBoard& operator=(const LaunchBoard&) = delete;
  int descriptor() const { return descriptor_; }

  void post_port(int port);
  /// Returns the posted port; 0 if none has been posted.
  int port() const;
  /// Keeps only the first failure. Texts are cut after 200 bytes.
  void post_failure(const std::string& what);
  std::optional<std::string> failure() const;
  /// Returns true unless the first message that any process reported has the same text.
  bool is_first_report(const std::string& what);

  /// The environment variable that passes the descriptor to a process.
  static constexpr const char* kVariable = "MOETUNE_LAUNCH_BOARD";

 private:
  struct Page;
  void map();

  int descriptor_ = -1;
  bool owned_ = false;
  Page* page_ = nullptr;
};

}  // namespace moe
