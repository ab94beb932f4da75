#pragma once
// A page of memory that a launcher and the processes it starts share: rank 0 posts the port of its store there, the
// launcher posts what became of a rank that can no longer speak for itself. The page is gone with the last of them,
// however they end.
#include <optional>
#include <string>

namespace moe {

class LaunchBoard {
 public:
  /// Makes a new board, on a descriptor that is inherited across exec. Throws BadInput if the system gives none.
  LaunchBoard();
  /// Opens a board that was inherited. Throws BadInput if the descriptor is no board; it stays open, but no exec
  /// inherits it again.
  explicit LaunchBoard(int descriptor);
  ~LaunchBoard();
  LaunchBoard(const LaunchBoard&) = delete;
  LaunchBoard& operator=(const LaunchBoard&) = delete;
  int descriptor() const { return descriptor_; }

  void post_port(int port);
  /// Returns the posted port; 0 while none is posted.
  int port() const;
  /// Keeps the first failure. Texts are cut after 200 bytes.
  void post_failure(const std::string& what);
  std::optional<std::string> failure() const;
  /// Returns whether this text is news: false if the first process that said anything said the same.
  bool first_to_say(const std::string& what);

  /// The variable that tells a process the descriptor.
  static constexpr const char* kVariable = "MOETUNE_LAUNCH_BOARD";

 private:
  struct Page;
  void map();

  int descriptor_ = -1;
  bool owned_ = false;
  Page* page_ = nullptr;
};

}  // namespace moe
