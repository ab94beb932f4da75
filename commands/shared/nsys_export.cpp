#include "commands/shared/nsys_export.h"

#include <algorithm>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <set>
#include <sqlite3.h>
#include <string_view>
#include <utility>

#include "moe/base/check.h"
#include "moe/base/config.h"
#include "moe/base/files.h"

namespace moe::commands {
namespace {

constexpr std::string_view kExpected = "an SQLite export of Nsight Systems (nsys export --type sqlite)";
constexpr std::string_view kMagic("SQLite format 3\0", 16);

constexpr std::string_view kKernels = "CUPTI_ACTIVITY_KIND_KERNEL", kLaunches = "CUPTI_ACTIVITY_KIND_RUNTIME",
                           kRanges = "NVTX_EVENTS", kStrings = "StringIds", kSchemas = "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                           kHosts = "TARGET_INFO_SYSTEM_ENV", kStart = "TARGET_INFO_SESSION_START_TIME",
                           kExport = "META_DATA_EXPORT";

uint64_t big_endian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

// Returns the size that the header of a database states (https://www.sqlite.org/fileformat2.html, 1.3).
uint64_t stated_size(std::string_view header) {
  constexpr size_t kPageSize = 16, kPages = 28, kWhole = 100;
  if (header.size() < kWhole) return kWhole;
  const uint64_t page = big_endian(header.substr(kPageSize, 2));
  return (page == 1 ? 65536 : page) * big_endian(header.substr(kPages, 4));
}

struct CloseDatabase {
  void operator()(sqlite3* database) const { sqlite3_close(database); }
};
struct EndStatement {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

// The rows of a query, read one by one.
class Rows {
 public:
  Rows(sqlite3* database, const std::string& path, const std::string& query) : database_(database), path_(path) {
    sqlite3_stmt* statement = nullptr;
    const int status = sqlite3_prepare_v2(database, query.c_str(), -1, &statement, nullptr);
    statement_.reset(statement);
    require<BadInput>(status == SQLITE_OK, "{}: found a database that SQLite cannot read ({}), expected {}", path,
                      sqlite3_errmsg(database), kExpected);
  }

  bool next() {
    const int status = sqlite3_step(statement_.get());
    require<BadInput>(status == SQLITE_ROW || status == SQLITE_DONE,
                      "{}: found a database that SQLite cannot read ({}), expected {}", path_,
                      sqlite3_errmsg(database_), kExpected);
    return status == SQLITE_ROW;
  }

  bool is_null(int column) const { return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL; }
  int64_t whole(int column) const { return sqlite3_column_int64(statement_.get(), column); }
  std::string_view bytes(int column) const {
    const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_.get(), column));
    return data == nullptr
               ? std::string_view()
               : std::string_view(data, static_cast<size_t>(sqlite3_column_bytes(statement_.get(), column)));
  }
  std::string text(int column) const { return std::string(bytes(column)); }

 private:
  sqlite3* database_;
  const std::string& path_;
  std::unique_ptr<sqlite3_stmt, EndStatement> statement_;
};

// A read-only database in memory; its file may have been compressed.
class Database {
 public:
  explicit Database(const std::string& path) : path_(path), bytes_(text_of_file(path, kExpected)) {
    require<BadInput>(is_sqlite(bytes_), "{}: found no SQLite database, expected {}", path, kExpected);
    require<BadInput>(bytes_.size() >= stated_size(bytes_), "{}: found {} bytes of {}, expected the whole database",
                      path, bytes_.size(), stated_size(bytes_));
    sqlite3* database = nullptr;
    const int status = sqlite3_open(":memory:", &database);
    database_.reset(database);
    require<std::runtime_error>(status == SQLITE_OK, "sqlite3_open: {}", sqlite3_errstr(status));
    sqlite3_db_config(database, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
    const auto size = static_cast<sqlite3_int64>(bytes_.size());
    require<BadInput>(sqlite3_deserialize(database, "main", reinterpret_cast<unsigned char*>(bytes_.data()), size, size,
                                          SQLITE_DESERIALIZE_READONLY) == SQLITE_OK,
                      "{}: found a database that SQLite cannot open ({}), expected {}", path, sqlite3_errmsg(database),
                      kExpected);
    read_columns();
  }

  Rows rows(const std::string& query) const { return {database_.get(), path_, query}; }
  bool has_table(std::string_view table) const { return columns_.contains(std::string(table)); }
  bool has_column(std::string_view table, const std::string& column) const {
    const auto found = columns_.find(std::string(table));
    return found != columns_.end() && found->second.contains(column);
  }
  /// Returns "TABLE.COLUMN", or NULL if the table lacks it.
  std::string column_or_null(std::string_view table, const std::string& column) const {
    return has_column(table, column) ? fmt::format("{}.{}", table, column) : "NULL";
  }

  /// Throws BadInput if the table is missing, naming the option that records it, or if it lacks a column.
  void require_table(std::string_view table, const std::vector<std::string>& columns, std::string_view remedy) const {
    require<BadInput>(has_table(table), "{}: found no table {}{}, expected one ({})", path_, table, version_, remedy);
    for (const std::string& column : columns)
      require<BadInput>(has_column(table, column), "{}: found table {} without column {}{}, expected {}", path_, table,
                        column, version_, kExpected);
  }

 private:
  // Views and virtual tables do not count as tables, because computing them could take any time.
  void read_columns() {
    std::vector<std::string> tables;
    for (Rows found = rows("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0"); found.next();)
      tables.push_back(found.text(0));
    for (const std::string& table : tables)
      for (Rows found = rows(fmt::format("SELECT name FROM pragma_table_info('{}')", quoted(table))); found.next();)
        columns_[table].insert(found.text(0));
    if (!has_column(kExport, "name") || !has_column(kExport, "value")) return;
    Rows found = rows(fmt::format("SELECT value FROM {} WHERE name = 'EXPORT_SCHEMA_VERSION'", kExport));
    if (found.next()) version_ = fmt::format(" (schema version {})", quoted_text(found.text(0)));
  }
  static std::string quoted(const std::string& name) {
    std::string text;
    for (const char c : name) text += c == '\'' ? std::string("''") : std::string(1, c);
    return text;
  }

  const std::string& path_;
  std::string bytes_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  std::map<std::string, std::set<std::string>> columns_;  // by table
  std::string version_;                                   // version of the export's schema, in brackets; empty: unknown
};

// The schemas of payloads. The column binaryData has a header of 32 bytes (domain and schema as 32 bits at 0 and 8, the
// payload's size and the total size as 64 bits at 16 and 24), then the payload.
class PayloadReader {
 public:
  explicit PayloadReader(const Database& database) {
    for (const char* column : {"domainId", "schemaId", "type", "name", "offset"})
      if (!database.has_column(kSchemas, column)) return;
    for (Rows found = database.rows(fmt::format("SELECT domainId, schemaId, type, name, \"offset\" FROM {}", kSchemas));
         found.next();)
      entries_[{found.whole(0), found.whole(1)}][found.text(3)] = {found.whole(2), found.whole(4)};
  }

  std::optional<NcclPayload> read(std::string_view bytes) const {
    constexpr size_t kHeader = 32;
    if (bytes.size() < kHeader) return std::nullopt;
    const uint64_t size = little_endian(bytes.substr(16, 8));
    const auto schema = entries_.find({little_endian(bytes.substr(0, 4)), little_endian(bytes.substr(8, 4))});
    if (schema == entries_.end() || little_endian(bytes.substr(24, 8)) != bytes.size() ||
        size + kHeader != bytes.size())
      return std::nullopt;
    const std::string_view payload = bytes.substr(kHeader);
    NcclPayload found;
    found.communicator = number(schema->second, "NCCL communicator ID", payload);
    found.bytes = number(schema->second, "Message size [bytes]", payload);
    found.ranks = number(schema->second, "No. of ranks", payload);
    return found.bytes || found.ranks ? std::optional(found) : std::nullopt;
  }

 private:
  struct Entry {
    int64_t type = 0, offset = 0;
  };

  static uint64_t little_endian(std::string_view bytes) {
    uint64_t number = 0;
    for (size_t i = bytes.size(); i-- > 0;) number = number << 8 | static_cast<unsigned char>(bytes[i]);
    return number;
  }
  // Types of nvToolsExtPayload.h: int, uint32, uint64, size_t.
  static size_t size_of(int64_t type) { return type == 5 || type == 16 ? 4 : type == 18 || type == 22 ? 8 : 0; }

  static std::optional<uint64_t> number(const std::map<std::string, Entry>& schema, const std::string& name,
                                        std::string_view payload) {
    const auto entry = schema.find(name);
    if (entry == schema.end()) return std::nullopt;
    const size_t size = size_of(entry->second.type);
    const auto offset = static_cast<uint64_t>(entry->second.offset);
    if (size == 0 || offset > payload.size() || payload.size() - offset < size) return std::nullopt;
    return little_endian(payload.substr(offset, size));
  }

  std::map<std::pair<uint64_t, uint64_t>, std::map<std::string, Entry>> entries_;  // by domain and schema
};

std::vector<NsysRange> read_ranges(const Database& database) {
  constexpr int kPushPop = 59;  // ENUM_NSYS_EVENT_TYPE
  database.require_table(kRanges, {"start", "end", "eventType", "globalTid", "text"}, "nsys profile --trace cuda,nvtx");
  const PayloadReader payloads(database);
  std::vector<NsysRange> ranges;
  std::vector<int> open;
  for (Rows row = database.rows(fmt::format(
           "SELECT {0}.start, {0}.\"end\", {0}.globalTid, COALESCE({0}.text, {1}.value, ''), {2} FROM {0} LEFT JOIN "
           "{1} ON {1}.id = {3} WHERE {0}.eventType = {4} AND {0}.\"end\" >= {0}.start "
           "ORDER BY {0}.globalTid, {0}.start, {0}.\"end\" DESC, {0}.rowid",
           kRanges, kStrings, database.column_or_null(kRanges, "binaryData"),
           database.column_or_null(kRanges, "textId"), kPushPop));
       row.next();) {
    NsysRange range{.name = row.text(3), .start_ns = row.whole(0), .end_ns = row.whole(1), .thread = row.whole(2)};
    range.nccl = payloads.read(row.bytes(4));
    const auto encloses = [&](int outer) {
      const NsysRange& around = ranges[outer];
      return around.thread == range.thread && around.end_ns >= range.end_ns;
    };
    while (!open.empty() && !encloses(open.back())) open.pop_back();
    range.parent = open.empty() ? -1 : open.back();
    open.push_back(static_cast<int>(ranges.size()));
    ranges.push_back(std::move(range));
  }
  return ranges;
}

std::vector<NsysKernel> read_kernels(const Database& database, std::vector<int64_t>& correlations) {
  database.require_table(kKernels, {"start", "end", "deviceId", "streamId", "correlationId"},
                         "nsys profile --trace cuda,nvtx of a program that runs kernels");
  database.require_table(kStrings, {"id", "value"}, kExpected);
  const std::string name = database.has_column(kKernels, "demangledName") ? "demangledName" : "shortName";
  database.require_table(kKernels, {name}, kExpected);
  std::vector<NsysKernel> kernels;
  for (Rows row = database.rows(fmt::format("SELECT {0}.start, {0}.\"end\", {0}.deviceId, {0}.streamId, "
                                            "{0}.correlationId, {2}, {1}.value FROM {0} LEFT JOIN {1} ON {1}.id = "
                                            "{0}.{3} ORDER BY {0}.start, {0}.rowid",
                                            kKernels, kStrings, database.column_or_null(kKernels, "globalPid"), name));
       row.next();) {
    kernels.push_back({.name = row.text(6),
                       .start_ns = row.whole(0),
                       .end_ns = row.whole(1),
                       .process = process_of_thread(row.whole(5)),
                       .device = row.whole(2),
                       .stream = row.whole(3)});
    correlations.push_back(row.whole(4));
  }
  return kernels;
}

// A call that launched kernels.
struct Launch {
  int64_t thread = 0, ns = 0;
  std::vector<size_t> kernels;
};

// Returns the launches by thread and time.
std::vector<Launch> read_launches(const Database& database, const NsysExport& from,
                                  const std::vector<int64_t>& correlations) {
  database.require_table(kLaunches, {"start", "globalTid", "correlationId"}, "nsys profile --trace cuda,nvtx");
  const bool has_process = database.has_column(kKernels, "globalPid");
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> launched;  // by process and correlation id
  for (size_t k = 0; k < from.kernels.size(); ++k)
    launched[{has_process ? from.kernels[k].process : 0, correlations[k]}].push_back(k);
  std::vector<Launch> launches;
  for (Rows row = database.rows(fmt::format("SELECT globalTid, start, correlationId FROM {}", kLaunches));
       row.next();) {
    const auto found = launched.find({has_process ? process_of_thread(row.whole(0)) : 0, row.whole(2)});
    if (found != launched.end()) launches.push_back({row.whole(0), row.whole(1), found->second});
  }
  std::ranges::stable_sort(launches, {}, [](const Launch& launch) { return std::pair(launch.thread, launch.ns); });
  return launches;
}

// Sets each kernel's innermost range around its launch.
void set_ranges(const std::vector<Launch>& launches, NsysExport& to) {
  size_t next = 0;
  int innermost = -1;
  const auto range = [&](int index) -> const NsysRange& { return to.ranges[index]; };
  for (const Launch& launch : launches) {
    const std::pair at(launch.thread, launch.ns);
    for (; next < to.ranges.size() && std::pair(to.ranges[next].thread, to.ranges[next].start_ns) <= at; ++next)
      innermost = static_cast<int>(next);
    while (innermost >= 0 && (range(innermost).thread != launch.thread || range(innermost).end_ns < launch.ns))
      innermost = range(innermost).parent;
    for (const size_t kernel : launch.kernels) to.kernels[kernel].range = innermost;
  }
}

std::string host_of(const Database& database) {
  if (!database.has_column(kHosts, "name") || !database.has_column(kHosts, "value")) return {};
  Rows row = database.rows(fmt::format("SELECT value FROM {} WHERE name = 'Hostname'", kHosts));
  return row.next() ? row.text(0) : std::string();
}

std::string start_of(const Database& database) {
  if (!database.has_column(kStart, "utcEpochNs")) return {};
  Rows row = database.rows(fmt::format("SELECT utcEpochNs FROM {}", kStart));
  constexpr int64_t kSecond = 1'000'000'000, kMaxSeconds = 253'402'300'799;  // end of the year 9999
  if (!row.next() || row.whole(0) < 0 || row.whole(0) / kSecond > kMaxSeconds) return {};
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:09}Z", fmt::gmtime(static_cast<std::time_t>(row.whole(0) / kSecond)),
                     row.whole(0) % kSecond);
}

}  // namespace

int64_t process_of_thread(int64_t thread) {
  constexpr int64_t kThreads = 0xFFFFFF;  // the last 24 bits are the thread's
  return thread & ~kThreads;
}

bool is_sqlite(const std::string& beginning) { return beginning.starts_with(kMagic); }

NsysExport read_nsys_export(const std::string& path) {
  const Database database(path);
  NsysExport read;
  read.path = path;
  std::vector<int64_t> correlations;
  read.kernels = read_kernels(database, correlations);
  require<BadInput>(!read.kernels.empty(), "{}: found no kernel, expected those of a program on a GPU", path);
  const std::vector<Launch> launches = read_launches(database, read, correlations);
  read.ranges = read_ranges(database);
  read.host = host_of(database);
  read.started = start_of(database);
  set_ranges(launches, read);
  return read;
}

std::vector<std::vector<double>> range_seconds(const NsysExport& from, const std::string& name) {
  struct Span {
    int64_t start_ns = 0, end_ns = 0;
  };
  std::map<std::pair<int64_t, int64_t>, std::map<int, Span>> spans;  // by rank, and by occurrence
  for (const NsysKernel& kernel : from.kernels)
    for (int r = kernel.range; r >= 0; r = from.ranges[r].parent) {
      if (from.ranges[r].name != name) continue;
      const auto [span, is_new] =
          spans[{kernel.process, kernel.device}].try_emplace(r, Span{kernel.start_ns, kernel.end_ns});
      span->second.end_ns = std::max(span->second.end_ns, kernel.end_ns);
    }
  std::vector<std::vector<double>> seconds;
  for (const auto& [rank, of_rank] : spans) {
    std::vector<Span> in_order;
    for (const auto& [occurrence, span] : of_rank) in_order.push_back(span);
    std::ranges::stable_sort(in_order, {}, &Span::start_ns);
    std::vector<double>& row = seconds.emplace_back();
    for (const Span& span : in_order)
      row.push_back((static_cast<double>(span.end_ns) - static_cast<double>(span.start_ns)) * 1e-9);
  }
  return seconds;
}

}  // namespace moe::commands
