# Completion of moetune in bash, which asks the program itself for the next words. `source` this file, or install it as
# share/bash-completion/completions/moetune, where bash finds it.
_moetune() {
  local line=${COMP_LINE:0:COMP_POINT} word
  mapfile -t COMPREPLY < <("${1/#\~/$HOME}" --complete "$line" 2>/dev/null)
  # Bash splits words at these characters, and expects only the part after the last one.
  word=${line##*[[:space:]]}
  COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*[@:=]}"}"}")
  [[ ${COMPREPLY[*]} != *: ]] || compopt -o nospace
}
complete -o default -F _moetune moetune
