# Completion of moetune in bash: the program itself is asked what may follow. `source` this file, or install it as
# share/bash-completion/completions/moetune, where bash finds it.
_moetune() {
  local line=${COMP_LINE:0:COMP_POINT} word
  mapfile -t COMPREPLY < <("${1/#\~/$HOME}" --complete "$line" 2>/dev/null)
  # Words end for bash where these stand, and it wants what is behind the last of them.
  word=${line##*[[:space:]]}
  COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[@:=]}"}"}")
  [[ ${COMPREPLY[*]} != *: ]] || compopt -o nospace
}
complete -o default -F _moetune moetune
