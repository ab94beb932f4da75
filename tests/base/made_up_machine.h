#pragma once
// A machine that a test makes up: files of /proc and /sys in a folder of its own.
#include "moe/base/system_files.h"
#include "tests/base/scratch.h"

namespace moe {

class MadeUpMachine {
 public:
  MadeUpMachine() { std::filesystem::create_directories(scratch_.path("root")); }
  SystemFiles files() const { return SystemFiles(scratch_.path("root")); }

  void write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = scratch_.path("root") + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << text;
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(scratch_.path("root") + path); }

 private:
  Scratch scratch_;
};

/// Returns what a file may hold that the kernel would not write.
inline const std::vector<std::string>& garbage() {
  static const std::vector<std::string> texts{"",
                                              "\n",
                                              "garbage",
                                              ":",
                                              "::",
                                              "-1",
                                              "1e999 nan inf",
                                              "9223372036854775808",
                                              "max max",
                                              "cpu x y z 1 2 3 4 5",
                                              "some avg10=",
                                              "MemTotal: -5 kB\nMemAvailable: 1e400 kB",
                                              std::string("\0\xff\xfe binary", 10),
                                              std::string(70000, '9')};
  return texts;
}

}  // namespace moe
